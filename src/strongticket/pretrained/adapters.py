"""Where each family of models keeps its matrices: one row a family. `docs/adding-a-model.md` shows how to add one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from strongticket.bounds.upward import Up, up_sqrt
from strongticket.construct.source import check_target
from strongticket.errors import StrongTicketError

What = Literal["attention", "attention+mlp"]
Kind = Literal["encoder", "causal", "image"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Attribute paths below the model's backbone; `{i}` is the layer's number and `{before}` that of the one before.

    Args:
        layers: the list of layers.
        attention: the module that splits its inputs into heads. Its attribute `scaling` multiplies the scores.
        query: the linear map of that name; query, key and value may be one fused map, given three times.
        key: likewise.
        value: likewise.
        output: the linear map behind the heads.
        up: the first linear map of the MLP.
        down: the second.
        attention_norm: the LayerNorm that makes the attention's inputs.
        mlp_norm: the LayerNorm that makes the MLP's inputs.
        first_norm: for layer 0, where `attention_norm` is a part of the layer before.
        head_size: the attention's attribute for the width of one head.
        all_heads_size: its attribute for the width of all heads, or "" if it has none.
        activation: the configuration's name for the function between `up` and `down`.
        kind: what the model reads, and whether it predicts the next token.
        positions: the table of position embeddings, which limits how long a text may be, or "" if there is no limit.
    """

    layers: str
    attention: str
    query: str
    key: str
    value: str
    output: str
    up: str
    down: str
    attention_norm: str
    mlp_norm: str
    first_norm: str = ""
    head_size: str = "attention_head_size"
    all_heads_size: str = ""
    activation: str = "hidden_act"
    kind: Kind = "encoder"
    positions: str = ""

    @property
    def fused(self) -> bool:
        """Whether one map makes queries, keys and values, side by side."""
        return self.query == self.key == self.value


_BERT = Adapter(
    layers="encoder.layer",
    attention="encoder.layer.{i}.attention.self",
    query="encoder.layer.{i}.attention.self.query",
    key="encoder.layer.{i}.attention.self.key",
    value="encoder.layer.{i}.attention.self.value",
    output="encoder.layer.{i}.attention.output.dense",
    up="encoder.layer.{i}.intermediate.dense",
    down="encoder.layer.{i}.output.dense",
    attention_norm="encoder.layer.{before}.output.LayerNorm",
    mlp_norm="encoder.layer.{i}.attention.output.LayerNorm",
    first_norm="embeddings.LayerNorm",
    all_heads_size="all_head_size",
    positions="embeddings.position_embeddings",
)

_GPT2 = Adapter(
    layers="h",
    attention="h.{i}.attn",
    query="h.{i}.attn.c_attn",
    key="h.{i}.attn.c_attn",
    value="h.{i}.attn.c_attn",
    output="h.{i}.attn.c_proj",
    up="h.{i}.mlp.c_fc",
    down="h.{i}.mlp.c_proj",
    attention_norm="h.{i}.ln_1",
    mlp_norm="h.{i}.ln_2",
    head_size="head_dim",
    all_heads_size="split_size",
    activation="activation_function",
    kind="causal",
    positions="wpe",
)

_VIT = Adapter(
    layers="layers",
    attention="layers.{i}.attention",
    query="layers.{i}.attention.q_proj",
    key="layers.{i}.attention.k_proj",
    value="layers.{i}.attention.v_proj",
    output="layers.{i}.attention.o_proj",
    up="layers.{i}.mlp.fc1",
    down="layers.{i}.mlp.fc2",
    attention_norm="layers.{i}.layernorm_before",
    mlp_norm="layers.{i}.layernorm_after",
    head_size="head_dim",
    kind="image",
)

_ADAPTERS: dict[str, Adapter] = {"bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "gpt2": _GPT2, "vit": _VIT}

# Functions that are never larger than their argument, in absolute value: they keep a bound on a norm.
_SHRINKING = (
    "gelu",
    "gelu_new",
    "gelu_fast",
    "gelu_pytorch_tanh",
    "gelu_python",
    "quick_gelu",
    "relu",
    "silu",
    "swish",
)


def register_adapter(model_type: str, adapter: Adapter) -> None:
    """Add a family, named as its configuration's `model_type`."""
    if not isinstance(adapter, Adapter):
        raise ValueError(f"register_adapter needs an Adapter; got {type(adapter).__name__}.")
    _ADAPTERS[model_type] = adapter


def adapter_of(config: Any) -> Adapter:
    """Give the row of a model's family, or say why it cannot be pruned.

    Args:
        config: a Hugging Face configuration.
    """
    family = getattr(config, "model_type", "")
    heads = getattr(config, "num_attention_heads", None)
    shared = getattr(config, "num_key_value_heads", None)
    if shared is not None and heads is not None and shared != heads:
        raise StrongTicketError(
            f"{family} has grouped-query attention: {heads} heads share {shared} keys and values. "
            "The construction gives every head keys and values of its own."
        )
    if any(getattr(config, name, None) for name in ("rope_parameters", "rope_theta", "rotary_dim", "rotary_pct")):
        raise StrongTicketError(
            f"{family} has rotary positions, which turn queries and keys by their place: "
            "no single matrix W_QK gives its scores, so there is none to prune into."
        )
    positions = getattr(config, "position_embedding_type", None) or "absolute"
    if positions != "absolute":
        raise StrongTicketError(
            f"{family} has position_embedding_type {positions!r}, which adds to the scores; only 'absolute' is covered."
        )
    if any(getattr(config, name, None) for name in ("relative_attention_num_buckets", "relative_attention")):
        raise StrongTicketError(
            f"{family} has relative position biases, which add to the scores what does not come from the tokens; "
            "only absolute positions are covered."
        )
    if any(getattr(config, name, False) for name in ("add_cross_attention", "is_encoder_decoder")):
        raise StrongTicketError(f"{family} has cross-attention, whose keys come from another model; it is not covered.")
    if family not in _ADAPTERS:
        raise StrongTicketError(
            f"no adapter for the family {family!r}; there are {', '.join(sorted(_ADAPTERS))}. "
            "docs/adding-a-model.md shows how to add one."
        )
    return _ADAPTERS[family]


class LinearMap(NamedTuple):
    """A linear map as (out, in), and its bias."""

    weight: Tensor
    bias: Tensor | None


class Norm(NamedTuple):
    r"""A LayerNorm's $\gamma$ and $\beta$."""

    weight: Tensor
    bias: Tensor | None

    def largest_output(self) -> float:
        r"""Bound the norm of everything it gives: $\sqrt{d} \max |\gamma| + \|\beta\|$."""
        size = up_sqrt(len(self.weight)) * float(self.weight.abs().max())
        if self.bias is not None:
            size += float(self.bias.double().norm()) * (1 + 1e-12)
        return size.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The numbers of one layer, on the CPU; `query`, `key` and `value` are apart, as the family may have them fused."""

    query: LinearMap
    key: LinearMap
    value: LinearMap
    output: LinearMap
    attention_norm: Norm
    mlp_norm: Norm
    up: LinearMap
    down: LinearMap
    n_heads: int
    scaling: float

    def tensors(self, what: What) -> Iterator[tuple[str, Tensor]]:
        """Name every tensor that a construction of `what` depends on; the scale of the scores is one of them."""
        maps = ("query", "key", "value", "output", "attention_norm")
        for name in (*maps, *(("up", "down", "mlp_norm") if what == "attention+mlp" else ())):
            for part, tensor in getattr(self, name)._asdict().items():
                if tensor is not None:
                    yield f"{name}.{part}", tensor
        yield "attention.scaling", torch.tensor([self.scaling], dtype=torch.float64, device="cpu")

    def down_input_norm(self) -> float:
        """Bound what reaches `down`: the activation never makes a number larger."""
        norm = float(torch.linalg.matrix_norm(self.up.weight.double(), ord=2)) * (1 + 1e-12)
        bound = Up(self.mlp_norm.largest_output()) * norm
        if self.up.bias is not None:
            bound += float(self.up.bias.double().norm()) * (1 + 1e-12)
        return bound.value


class Target:
    """A model seen through its adapter.

    Args:
        model: any Hugging Face model of a known family, with or without a head on top.
    """

    def __init__(self, model: nn.Module) -> None:
        config = getattr(model, "config", None)
        if config is None or not isinstance(model, nn.Module):
            raise ValueError(f"a Hugging Face model is needed, one with a config; got {type(model).__name__}.")
        self.adapter = adapter_of(config)
        self.config: Any = config
        self.model_type: str = config.model_type
        self.backbone: nn.Module = getattr(model, "base_model", model)
        self.n_layers = len(self._at(self.adapter.layers))  # type: ignore[arg-type]
        self._read: dict[int, Layer] = {}
        if not self.n_layers:
            raise StrongTicketError(f"this {self.model_type} has no layers, so there is nothing to prune into.")

    def module(self, part: str, i: int) -> nn.Module:
        """Give the module the adapter names, in layer i."""
        adapter = self.adapter
        path = adapter.first_norm if part == "attention_norm" and i == 0 and adapter.first_norm else ""
        return self._at((path or getattr(adapter, part)).format(i=i, before=i - 1))

    def layer(self, i: int) -> Layer:
        """Read layer i, once; numbers that are not finite are refused by name."""
        if i not in self._read:
            self._read[i] = self._read_layer(i)
        return self._read[i]

    def _read_layer(self, i: int) -> Layer:
        attention = self.module("attention", i)
        scaling = getattr(attention, "scaling", None)
        if not isinstance(scaling, float) or not hasattr(attention, self.adapter.head_size):
            raise StrongTicketError(
                f"{type(attention).__name__} has no scaling or {self.adapter.head_size}: this release of transformers "
                f"lays {self.model_type} out in another way than the adapter says."
            )
        query, key, value = self._projections(i)
        head = getattr(attention, self.adapter.head_size)
        read = Layer(
            query=query,
            key=key,
            value=value,
            output=_read_linear(self.module("output", i)),
            up=_read_linear(self.module("up", i)),
            down=_read_linear(self.module("down", i)),
            attention_norm=_read_norm(self.module("attention_norm", i)),
            mlp_norm=_read_norm(self.module("mlp_norm", i)),
            n_heads=len(query.weight) // head,
            scaling=scaling,
        )
        for name, tensor in read.tensors("attention+mlp"):
            check_target(f"layer {i}'s {name}", tensor)
        return read

    def layers(self) -> Iterator[Layer]:
        """Read one layer after the other."""
        return (self.layer(i) for i in range(self.n_layers))

    def tensors(self, what: What) -> dict[str, Tensor]:
        """Name every tensor a construction depends on, alike for all families: their hash names the target."""
        return {
            f"layer.{i}.{name}": tensor for i, layer in enumerate(self.layers()) for name, tensor in layer.tensors(what)
        }

    def most_tokens(self) -> int | None:
        """Give how many tokens the model can take, or None if there is no limit."""
        if not self.adapter.positions:
            return None
        table = self._at(self.adapter.positions)
        if not isinstance(table, nn.Embedding):
            raise StrongTicketError(f"an Embedding was expected where the model has a {type(table).__name__}.")
        # RoBERTa gives padding a place of its own, and counts on from there.
        return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)

    def check_activation(self) -> None:
        """Refuse an MLP whose activation could make its input larger: its certificate would not hold."""
        name = getattr(self.config, self.adapter.activation, None)
        if name not in _SHRINKING:
            raise StrongTicketError(
                f"the MLP's activation {name!r} is not known to keep norms; known are {', '.join(_SHRINKING)}. "
                "Prune into the attention alone."
            )

    def _projections(self, i: int) -> tuple[LinearMap, LinearMap, LinearMap]:
        if not self.adapter.fused:
            query, key, value = (_read_linear(self.module(part, i)) for part in ("query", "key", "value"))
            return query, key, value
        weight, bias = _read_linear(self.module("query", i))
        biases = bias.chunk(3) if bias is not None else (None,) * 3
        query, key, value = (LinearMap(w, b) for w, b in zip(weight.chunk(3), biases, strict=True))
        return query, key, value

    def _at(self, path: str) -> nn.Module:
        try:
            return self.backbone.get_submodule(path)
        except AttributeError:
            raise StrongTicketError(
                f"this {self.model_type} has no {path!r}: the adapter was made for another layout. "
                "docs/adding-a-model.md shows how to write one."
            ) from None


def _read_linear(module: nn.Module) -> LinearMap:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    kind = type(module).__name__
    # Conv1D is GPT-2's own linear map, which keeps (in, out).
    if kind not in ("Linear", "Conv1D", "NonDynamicallyQuantizableLinear") or not isinstance(weight, Tensor):
        raise StrongTicketError(f"a linear map was expected where the model has a {kind}; is it quantised, or wrapped?")
    weight = _plain(weight)
    return LinearMap(weight.T if kind == "Conv1D" else weight, _plain(bias) if bias is not None else None)


def _read_norm(module: nn.Module) -> Norm:
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    if "LayerNorm" not in type(module).__name__ or not isinstance(weight, Tensor):
        raise StrongTicketError(f"a LayerNorm was expected where the model has a {type(module).__name__}.")
    return Norm(_plain(weight), _plain(bias) if bias is not None else None)


def _plain(tensor: Tensor) -> Tensor:
    """Take numbers as float32 on the CPU, exactly: products of two of them are then exact in float64."""
    if tensor.is_meta:
        return tensor.detach()  # for `check_target` to refuse by its name
    plain = tensor.detach().resolve_neg().cpu().float()
    same = tensor.dtype != torch.float64 or torch.allclose(plain.double(), tensor.detach().cpu(), 0, 0, equal_nan=True)
    if not same:
        raise StrongTicketError("a target's weights must be float32 numbers; these float64 ones are not. Use float().")
    return plain
