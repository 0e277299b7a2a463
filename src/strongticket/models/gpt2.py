r"""GPT-2 in one file, with query, key and value as separate tensors.

Shapes: B batch, T tokens, H heads, d `d_model`, V `vocabulary`. A forward pass reads each parameter exactly once, so
that a parametrization (a mask, say) runs once per pass and tied embeddings share its result.
"""

import math
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812, the usual name
from torch import Tensor, nn

from strongticket.errors import MissingExtraError
from strongticket.models.causal_attention import causal_attention
from strongticket.models.gpt2_sizes import SIZES as SIZES
from strongticket.models.gpt2_sizes import GPT2Config as GPT2Config
from strongticket.models.gpt2_sizes import Group as Group
from strongticket.models.gpt2_sizes import gpt2_config as gpt2_config
from strongticket.ops.cross_entropy import linear_cross_entropy
from strongticket.ops.embedding import embedding
from strongticket.ops.rng import Distribution, random_weights

INITIAL_STD = 0.02


class _Undrawn:
    """A layer whose weights are left for `GPT2.draw` to set."""

    def reset_parameters(self) -> None:
        """Do nothing: the weights are drawn later."""


class Linear(_Undrawn, nn.Linear):
    """torch's linear layer."""


class Embedding(_Undrawn, nn.Embedding):
    """torch's embedding."""


class Attention(nn.Module):
    """Causal self-attention with H heads."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        d = config.d_model
        self.n_heads, self.dropout = config.n_heads, config.dropout
        self.query, self.key, self.value, self.output = (Linear(d, d, config.bias) for _ in range(4))

    def inputs(self, x: Tensor) -> Tensor:
        """Return query, key and value concatenated: (B, T, d) -> (B, T, 3 d)."""
        layers = (self.query, self.key, self.value)
        if x.shape[1] == 1:  # each weight is used once, so copying them would take longer than the product
            return torch.cat([layer(x) for layer in layers], dim=2)
        # Three tensors for masking, one product for the GPU.
        weight = torch.cat([layer.weight for layer in layers])  # (3 d, d)
        bias = torch.cat([layer.bias for layer in layers]) if self.query.bias is not None else None
        return F.linear(x, weight, bias)

    def heads(self, x: Tensor) -> tuple[Tensor, ...]:
        """Return query, key and value of each head, (B, H, T, d / H) each."""
        qkv = self.inputs(x).view(*x.shape[:2], 3, self.n_heads, -1)  # (B, T, 3, H, d / H)
        return tuple(part.transpose(1, 2) for part in qkv.unbind(dim=2))

    def forward(self, x: Tensor) -> Tensor:
        """Attend: (B, T, d) -> (B, T, d)."""
        q, k, v = self.heads(x)
        dropout = self.dropout if self.training else 0.0
        mixed = causal_attention(q, k, v, dropout)  # (B, H, T, d / H)
        out: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return out


class MLP(nn.Module):
    """Two layers, with four times the width between them."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        d = config.d_model
        self.activation = config.activation
        self.up, self.down = Linear(d, 4 * d, config.bias), Linear(4 * d, d, config.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (..., d)."""
        x = self.up(x)
        out: Tensor = self.down(F.relu(x) if self.activation == "relu" else F.gelu(x, approximate="tanh"))
        return out


class Block(nn.Module):
    """Attention, then MLP, each on a normalised copy of the stream and added to it."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.attention_norm, self.attention = _norm(config), Attention(config)
        self.mlp_norm, self.mlp = _norm(config), MLP(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to (B, T, d)."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        out: Tensor = x + self.dropout(self.mlp(self.mlp_norm(x)))
        return out


class GPT2(nn.Module):
    """GPT-2 with weights drawn by `strongticket.ops.rng`, so that a seed reproduces them (see `initial_scales`).

    Args:
        config: its sizes and settings.
        seed: seed of the random tensors; biases start at 0 and norms at 1.
        device: where to create it; the weights have the same bits everywhere. On "meta" it has shapes but no weights.

    Example:
        >>> model = GPT2(gpt2_config("nano"), seed=1)
        >>> model(torch.tensor([[72, 101, 121]])).shape
        torch.Size([1, 3, 256])
    """

    def __init__(self, config: GPT2Config, *, seed: int = 0, device: torch.device | str | None = None) -> None:
        super().__init__()
        self.config = config
        with torch.device(device or "cpu"):
            self.tokens = Embedding(config.vocabulary, config.d_model)
            self.positions = Embedding(config.context, config.d_model)
            self.dropout = nn.Dropout(config.dropout)
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layers))
            self.final_norm = _norm(config)
            self.head = None if config.tied else Linear(config.d_model, config.vocabulary, bias=False)
        if not self.tokens.weight.is_meta:
            self.draw(seed)

    @torch.no_grad()
    def draw(self, seed: int) -> None:
        """Set every parameter to its initial value for `seed`."""
        scales = initial_scales(self.config)
        for name, parameter in self.named_parameters():
            if name in scales:
                shape = tuple(parameter.shape)
                parameter.copy_(random_weights(seed, name, shape, *scales[name], device=parameter.device))
            else:
                parameter.fill_(0.0 if name.endswith("bias") else 1.0)

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Predict the next token at each position.

        Args:
            tokens: (B, T) integers below V, T at most `context`.
            targets: (B, T), the actual next tokens.

        Returns:
            The logits (B, T, V); with targets, their mean cross-entropy in nats, a scalar.
        """
        config, T = self.config, tokens.shape[1]
        self.check_length(T)
        table = self.tokens.weight  # (V, d)
        x = self.dropout(embedding(tokens, table) + self.positions.weight[:T])  # (B, T, d)
        for block in self.blocks:
            x = block(x)
        x = self.final_norm(x) * config.output_gain
        head = table if self.head is None else self.head.weight
        if targets is None:
            return F.linear(x, head)
        return linear_cross_entropy(x.flatten(0, 1), head, targets.flatten())

    def check_length(self, tokens: int) -> None:
        """Refuse more tokens than there are positions."""
        if (context := self.config.context) < tokens:
            raise ValueError(f"this GPT-2 sees at most {context} tokens; got {tokens}. Cut them or raise `context`.")

    def embed(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Embed tokens (B, T) at positions (T,), for decoding token by token: (B, T, d)."""
        x: Tensor = self.tokens(tokens) + self.positions(places)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """Return the logits of normalised features, (..., d) -> (..., V)."""
        return F.linear(x, self.tokens.weight if self.head is None else self.head.weight)

    def parameter_counts(self) -> dict[Group, int]:
        """Count the parameters of each group; a tied head has none of its own."""
        counts: dict[Group, int] = dict.fromkeys(("attention", "mlp", "embeddings", "norms", "head", "biases"), 0)
        for name, parameter in self.named_parameters():
            counts[group_of(name)] += parameter.numel()
        return counts


def initial_scales(config: GPT2Config) -> dict[str, tuple[Distribution, float]]:
    r"""Return every random tensor's distribution and standard deviation: 0.02, divided by $\sqrt{2b}$ at block outputs.

    Each of the $b$ blocks adds to the stream twice: its attention's output and the MLP's second layer (paper, B.2).
    Tensors not named here start as constants: biases 0, norms 1.
    """
    into_stream = INITIAL_STD / math.sqrt(2 * config.n_layers)
    scales: dict[str, tuple[Distribution, float]] = {}
    for name in ("tokens", "positions", *([] if config.tied else ["head"])):
        scales[f"{name}.weight"] = ("normal", INITIAL_STD)
    for i in range(config.n_layers):
        for layer in ("attention.query", "attention.key", "attention.value", "mlp.up"):
            scales[f"blocks.{i}.{layer}.weight"] = ("normal", INITIAL_STD)
        for layer in ("attention.output", "mlp.down"):
            scales[f"blocks.{i}.{layer}.weight"] = ("normal", into_stream)
    return scales


def group_of(name: str) -> Group:
    """Return the group of a parameter of `GPT2`.

    Example:
        >>> group_of("blocks.0.attention.query.weight"), group_of("blocks.0.mlp_norm.bias")
        ('attention', 'norms')
    """
    *_, layer, kind = name.split(".")
    if layer.endswith("norm"):
        return "norms"
    if kind == "bias":
        return "biases"
    if layer in ("tokens", "positions"):
        return "embeddings"
    if layer == "head":
        return "head"
    return "attention" if ".attention." in name else "mlp"


# --- Hugging Face ----------------------------------------------------------------------------------------------------

_END = 50256
_SETTINGS = {
    "n_layers": "n_layer",
    "d_model": "n_embd",
    "n_heads": "n_head",
    "context": "n_positions",
    "vocabulary": "vocab_size",
    "tied": "tie_word_embeddings",
    "norm_epsilon": "layer_norm_epsilon",
}


@torch.no_grad()
def from_hugging_face(model: nn.Module) -> GPT2:
    """Copy a `transformers.GPT2LMHeadModel`; its dropout is not copied."""
    settings: Any = model.config
    _check_hugging_face(settings)
    config = GPT2Config(
        **{ours: getattr(settings, theirs) for ours, theirs in _SETTINGS.items()},
        activation="relu" if settings.activation_function == "relu" else "gelu",
    )
    copy = GPT2(config, device=next(model.parameters()).device)
    source, target = model.state_dict(), copy.state_dict()
    for their_name, names, transposed in _layers(config):
        weight, bias = source[f"{their_name}.weight"], source.get(f"{their_name}.bias")
        for i, name in enumerate(names):
            target[f"{name}.weight"].copy_((weight.T if transposed else weight).chunk(len(names))[i])
            if bias is not None:
                target[f"{name}.bias"].copy_(bias.chunk(len(names))[i])
    return copy


@torch.no_grad()
def to_hugging_face(model: GPT2) -> nn.Module:
    """Convert to a `transformers.GPT2LMHeadModel`, which `save_pretrained` writes to a folder.

    Missing biases become zeros, and the output gain is multiplied into the last norm.
    """
    try:
        transformers: Any = import_module("transformers")
    except ImportError:
        raise MissingExtraError("Hugging Face models need transformers: pip install 'strongticket[hf]'") from None
    config = model.config
    # GPT-2's own number for the end of a text, if the vocabulary is large enough.
    end = _END if config.vocabulary > _END else None
    settings = transformers.GPT2Config(
        **{theirs: getattr(config, ours) for ours, theirs in _SETTINGS.items()},
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout),
        activation_function="relu" if config.activation == "relu" else "gelu_new",
        bos_token_id=end,
        eos_token_id=end,
    )
    theirs: nn.Module = transformers.GPT2LMHeadModel(settings).to(model.tokens.weight.device)
    target = theirs.state_dict()
    for their_name, names, transposed in _layers(config):
        layers: list[Any] = [model.get_submodule(name) for name in names]
        # Read as attributes, not from the state dict, so that a masked layer gives its masked weight.
        weights = torch.cat([layer.weight for layer in layers])
        target[f"{their_name}.weight"].copy_(weights.T if transposed else weights)
        if f"{their_name}.bias" in target:
            biases = [layer.bias for layer in layers] if config.bias else [torch.zeros(len(weights))]
            target[f"{their_name}.bias"].copy_(torch.cat(biases))
    for kind in ("weight", "bias"):
        target[f"transformer.ln_f.{kind}"].mul_(config.output_gain)
    return theirs


def _layers(config: GPT2Config) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield Hugging Face's name of each layer, our names for its concatenated parts, and whether it is (in, out)."""
    yield "transformer.wte", ("tokens",), False
    yield "transformer.wpe", ("positions",), False
    for i in range(config.n_layers):
        theirs, ours = f"transformer.h.{i}", f"blocks.{i}"
        yield f"{theirs}.ln_1", (f"{ours}.attention_norm",), False
        yield f"{theirs}.attn.c_attn", tuple(f"{ours}.attention.{part}" for part in ("query", "key", "value")), True
        yield f"{theirs}.attn.c_proj", (f"{ours}.attention.output",), True
        yield f"{theirs}.ln_2", (f"{ours}.mlp_norm",), False
        yield f"{theirs}.mlp.c_fc", (f"{ours}.mlp.up",), True
        yield f"{theirs}.mlp.c_proj", (f"{ours}.mlp.down",), True
    yield "transformer.ln_f", ("final_norm",), False
    if not config.tied:
        yield "lm_head", ("head",), False


def _check_hugging_face(config: Any) -> None:
    """Refuse settings that would silently change the function."""
    allowed = {
        "activation_function": ("gelu_new", "gelu_pytorch_tanh", "relu"),
        "n_inner": (None, 4 * config.n_embd),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    }
    for setting, values in allowed.items():
        if (value := getattr(config, setting)) not in values:
            raise ValueError(f"{setting}={value!r} is not supported; GPT-2 here has {' or '.join(map(repr, values))}.")


def _norm(config: GPT2Config) -> nn.LayerNorm:
    return nn.LayerNorm(config.d_model, eps=config.norm_epsilon, bias=config.bias)
