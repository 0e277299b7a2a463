"""Which parts the layers of each family of models have. `docs/adding-a-model.md` shows how to describe another."""

import runpy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from strongticket.errors import StrongTicketError, first_line
from strongticket.pretrained.heads import Heads, why_not_merged
from strongticket.pretrained.parts import Behind, Given, Input, Norm, Part, ReluPair

What = Literal["attention", "attention+mlp"]
Parts = Literal["merged", "linear"]
# What a model reads. "encoder" and "causal" models read text; the latter predict the next token.
Kind = Literal["encoder", "causal", "image", "two texts", "text and image", "audio and text", "vectors"]


@dataclass(frozen=True, slots=True)
class Family:
    """The parts of the layers of a family of models.

    Args:
        layers: for each list of layers, given by its path below the model's backbone, the parts that each layer has;
            the path is "" for a model that is one layer.
        kind: what the model reads, and whether it predicts the next token.
        positions: the table of position embeddings, which limits how long a text may be, or "" if there is no limit.
        linear: heads cannot be merged, because rotary positions or norms come between queries and keys, or because
            heads share their keys: each linear map is a separate part.
        ends: for certificates of given samples, the norm after the last layer, or "" if the output is that layer's; one
            for each list of layers. Parts then follow each other, each with a residual around it and with its norm
            before or after it. None if layers are joined in another way: their samples cannot be certified.
        branch_norms: for the same certificates, the norms that the outputs of attention and MLP pass before they are
            added to the residual, if there are any.
    """

    layers: Mapping[str, Sequence[Part]]
    kind: Kind = "encoder"
    positions: str = ""
    linear: bool = False
    ends: str | Sequence[str] | None = None
    branch_norms: Sequence[str] = ()

    def __post_init__(self) -> None:
        if len(ends := self._ends()) not in (0, len(self.layers)):
            raise ValueError(f"ends must have one norm for each of {', '.join(self.layers)}; got {', '.join(ends)}.")
        for parts in self.layers.values():
            names = [part.name for part in parts]
            if len(set(names)) < len(names):
                raise ValueError(f"the parts of a layer need different names; got {', '.join(names)}.")
            for part in parts:
                if not isinstance(part.input, Input):
                    raise ValueError(
                        f"{part.name} needs the source of its inputs: Norm, Behind or Given; got {part.input!r:.40}."
                    )
                for source in (getattr(part.input, field.name) for field in fields(part.input)):
                    if isinstance(source, Part) and source not in parts:
                        raise ValueError(
                            f"{part.name} reads the output of {source.name}, which is not a part of the layer."
                        )
            for at, times in Counter(each.at for part in parts for each in part.linear()).items():
                if times > 1:
                    raise ValueError(f"{times} parts of a layer stand for the map at {at}; only one can.")

    def end_of(self, path: str) -> str:
        """Return the norm after the last layer of a list."""
        return dict(zip(self.layers, self._ends(), strict=True))[path]

    def _ends(self) -> Sequence[str]:
        return [self.ends] if isinstance(self.ends, str) else self.ends or []

    def chosen(self, what: What, parts: Parts = "merged") -> dict[str, list[Part]]:
        """Return the parts that a ticket stands for."""
        chosen = {
            path: [part for part in listed if what == "attention+mlp" or not part.in_mlp]
            for path, listed in self.layers.items()
        }
        if parts == "merged" and not self.linear:
            return chosen
        return {path: [each for part in listed for each in part.linear()] for path, listed in chosen.items()}


def mlp(up: str, down: str, input: Input) -> list[Part]:
    """Describe two linear maps with an activation between them."""
    return [first := ReluPair("mlp.up", up, input), ReluPair("mlp.down", down, Behind(first))]


def gated_mlp(gate: str, up: str, down: str, input: Input) -> list[Part]:
    """Describe an MLP in which the activated outputs of one map are multiplied by those of another."""
    first, second = ReluPair("mlp.gate", gate, input), ReluPair("mlp.up", up, input)
    return [first, second, ReluPair("mlp.down", down, Behind(first, times=second))]


def fused_gated_mlp(gate_up: str, down: str, input: Input) -> list[Part]:
    """Describe a gated MLP whose first two maps are fused into one."""
    first = ReluPair("mlp.gate_up", gate_up, input)
    return [first, ReluPair("mlp.down", down, Behind(first, halves=True))]


def maps(at: str, query: str, key: str, value: str, output: str) -> tuple[str, str, str, str]:
    """Return the paths of an attention's four maps, which are all inside it; at "", the model is the attention."""
    inside = f"{at}." if at else ""
    return inside + query, inside + key, inside + value, inside + output


def _bert(config: Any) -> Family:
    attention = Heads(
        at="attention.self",
        maps=(*maps("attention.self", "query", "key", "value", "")[:3], "attention.output.dense"),
        input=Norm("../output.LayerNorm", first="embeddings.LayerNorm"),
    )
    rest = mlp("intermediate.dense", "output.dense", Norm("attention.output.LayerNorm"))
    return Family({"encoder.layer": [attention, *rest]}, positions="embeddings.position_embeddings", ends="")


def _mpnet(config: Any) -> Family:
    attention = Heads(
        at="attention.attn",
        maps=maps("attention.attn", "q", "k", "v", "o"),
        input=Norm("../output.LayerNorm", first="embeddings.LayerNorm"),
    )
    layer = [attention, *mlp("intermediate.dense", "output.dense", Norm("attention.LayerNorm"))]
    # Its attention has no attribute for the factor on the scores, which merged heads need.
    return Family({"encoder.layer": layer}, positions="embeddings.position_embeddings", linear=True)


def _distilbert(config: Any) -> Family:
    attention = Heads(
        at="attention",
        maps=maps("attention", "q_lin", "k_lin", "v_lin", "out_lin"),
        input=Norm("../output_layer_norm", first="embeddings.LayerNorm"),
    )
    layer = [attention, *mlp("ffn.lin1", "ffn.lin2", Norm("sa_layer_norm"))]
    return Family({"transformer.layer": layer}, positions="embeddings.position_embeddings", ends="")


def _modernbert(config: Any) -> Family:
    # The first layer's own norm does nothing.
    input = Norm("attn_norm", first="embeddings.norm")
    attention = _fused("attn", "Wqkv", "Wo", input)
    return Family({"layers": [attention, *fused_gated_mlp("mlp.Wi", "mlp.Wo", Norm("mlp_norm"))]}, linear=True)


def _gpt2(config: Any) -> Family:
    layer = [_fused("attn", "c_attn", "c_proj", Norm("ln_1")), *mlp("mlp.c_fc", "mlp.c_proj", Norm("ln_2"))]
    return Family({"h": layer}, kind="causal", positions="wpe", ends="ln_f")


def _opt(config: Any) -> Family:
    layer = [_heads("self_attn", "self_attn_layer_norm"), *mlp("fc1", "fc2", Norm("final_layer_norm"))]
    ends = "decoder.final_layer_norm" if config.do_layer_norm_before else None
    return Family({"decoder.layers": layer}, kind="causal", positions="decoder.embed_positions", ends=ends)


def _gpt_neo(config: Any) -> Family:
    layer = [_heads("attn.attention", "ln_1"), *mlp("mlp.c_fc", "mlp.c_proj", Norm("ln_2"))]
    # Scores have no factor, and so no attribute for it, which merged heads need.
    return Family({"h": layer}, kind="causal", positions="wpe", linear=True)


def _gptj(config: Any) -> Family:
    layer = [_heads("attn", "ln_1"), *mlp("mlp.fc_in", "mlp.fc_out", Norm("ln_1"))]
    return Family({"h": layer}, kind="causal", linear=True)


def _phi(config: Any) -> Family:
    attention = _heads("self_attn", "input_layernorm", output="dense")
    layer = [attention, *mlp("mlp.fc1", "mlp.fc2", Norm("input_layernorm"))]
    return Family({"layers": layer}, kind="causal", linear=True)


def _phi3(config: Any) -> Family:
    attention = _fused("self_attn", "qkv_proj", "o_proj", Norm("input_layernorm"))
    rest = fused_gated_mlp("mlp.gate_up_proj", "mlp.down_proj", Norm("post_attention_layernorm"))
    return Family({"layers": [attention, *rest]}, kind="causal", linear=True, ends="norm")


def _gpt_neox(config: Any) -> Family:
    attention = _fused("attention", "query_key_value", "dense", Norm("input_layernorm"), by_head=True)
    rest = mlp("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", Norm("post_attention_layernorm"))
    return Family({"layers": [attention, *rest]}, kind="causal", linear=True)


def _llama(config: Any, before_mlp: str = "post_attention_layernorm", **more: Any) -> Family:
    attention = _heads("self_attn", "input_layernorm", output="o_proj", **more)
    rest = gated_mlp("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", Norm(before_mlp))
    # The others have capped scores, other residuals, parts side by side, or layers that do not turn.
    ends = "norm" if config.model_type in ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text") else None
    return Family({"layers": [attention, *rest]}, kind="causal", linear=True, ends=ends)


def _qwen3(config: Any, **more: Any) -> Family:
    return _llama(config, norms=("self_attn.q_norm", "self_attn.k_norm"), **more)


def _gemma3(config: Any) -> Family:
    behind = ("post_attention_layernorm", "post_feedforward_layernorm")
    return replace(_qwen3(config, before_mlp="pre_feedforward_layernorm"), branch_norms=behind)


def _experts(config: Any) -> Family:
    # Each expert is a slice of one tensor, so that no module computes its maps.
    return Family({"layers": [_heads("self_attn", "input_layernorm", output="o_proj")]}, kind="causal", linear=True)


def _t5(config: Any) -> Family:
    def layer(side: str, across: bool) -> list[Part]:
        # Only UMT5's layers have positions of their own.
        positions = f"{'' if config.model_type == 'umt5' else f'/{side}.block.0.'}layer.0.SelfAttention"
        attention = _t5_heads("layer.0.SelfAttention", causal=across, positions=positions)
        cross = _t5_heads("layer.1.EncDecAttention", name="cross", memory=Norm("/encoder.final_layer_norm"))
        at, norm = f"layer.{1 + across}.DenseReluDense", Norm(f"layer.{1 + across}.layer_norm")
        gated = gated_mlp(f"{at}.wi_0", f"{at}.wi_1", f"{at}.wo", norm)
        rest = gated if config.is_gated_act else mlp(f"{at}.wi", f"{at}.wo", norm)
        return [attention, *([cross] if across else []), *rest]

    sides = ("encoder", "decoder") if config.is_encoder_decoder else ("encoder",)
    layers = {f"{side}.block": layer(side, side == "decoder") for side in sides}
    return Family(layers, kind="two texts", ends=[f"{side}.final_layer_norm" for side in sides])


def _t5_heads(at: str, **more: Any) -> Heads:
    return Heads(at=at, maps=maps(at, "q", "k", "v", "o"), input=Norm(f"{at[:7]}.layer_norm"), **more)


def _vit(config: Any) -> Family:
    attention = _heads("attention", "layernorm_before", output="o_proj")
    layer = [attention, *mlp("mlp.fc1", "mlp.fc2", Norm("layernorm_after"))]
    return Family({"layers": layer}, kind="image", ends="layernorm")


def _dinov2(config: Any) -> Family:
    gated = gated_mlp("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", Norm("norm2"))
    rest = gated if config.use_swiglu_ffn else mlp("mlp.fc1", "mlp.fc2", Norm("norm2"))
    return Family({"encoder.layer": [_heads("attention", "norm1", output="o_proj"), *rest]}, kind="image")


def _clip(config: Any) -> Family:
    attention, rest = _heads("self_attn", "layer_norm1"), mlp("mlp.fc1", "mlp.fc2", Norm("layer_norm2"))
    clip = config.model_type.startswith("clip")
    text, vision = [replace(attention, causal=clip), *rest], [attention, *rest]
    # CLIP's last norm of images is for the pooled output only.
    ends = ("final_layer_norm", "" if clip else "post_layernorm")
    if hasattr(config, "text_config"):
        layers = {"text_model.encoder.layers": text, "vision_model.encoder.layers": vision}
        inside = [f"{tower}_model.{end}" if end else "" for tower, end in zip(("text", "vision"), ends, strict=True)]
        positions = "text_model.embeddings.position_embedding"
        return Family(layers, kind="text and image", positions=positions, ends=inside)
    if hasattr(config, "patch_size"):
        return Family({"encoder.layers": vision}, kind="image", ends=ends[1])
    return Family({"encoder.layers": text}, positions="embeddings.position_embedding", ends=ends[0])


def _bart(config: Any) -> Family:
    memory = Norm(f"/encoder.layers.{config.encoder_layers - 1}.final_layer_norm")

    def layer(side: str, across: bool) -> list[Part]:
        before = Norm("../final_layer_norm", first=f"{side}.layernorm_embedding")
        attention = _heads("self_attn", before, causal=across)
        cross = _heads("encoder_attn", "self_attn_layer_norm", name="cross", memory=memory)
        norm = Norm("encoder_attn_layer_norm" if across else "self_attn_layer_norm")
        return [attention, *([cross] if across else []), *mlp("fc1", "fc2", norm)]

    layers = {"encoder.layers": layer("encoder", False), "decoder.layers": layer("decoder", True)}
    return Family(layers, kind="two texts", ends=("", ""))


def _mbart(config: Any) -> Family:
    return replace(_whisper(config), kind="two texts")


def _whisper(config: Any) -> Family:
    attention, rest = _heads("self_attn", "self_attn_layer_norm"), mlp("fc1", "fc2", Norm("final_layer_norm"))
    cross = _heads("encoder_attn", "encoder_attn_layer_norm", name="cross", memory=Norm("/encoder.layer_norm"))
    decoder = [replace(attention, causal=True), cross, *rest]
    layers = {"encoder.layers": [attention, *rest], "decoder.layers": decoder}
    return Family(layers, kind="audio and text", ends=("encoder.layer_norm", "decoder.layer_norm"))


def _torch(config: Any) -> Family:
    """Describe `torch.nn`'s own modules, as returned by `opened`."""
    if config.model_type == "MultiheadAttention":
        return Family({"": [_heads("", Given())]}, kind="vectors")

    def layer(across: bool) -> list[Part]:
        norms: list[Input] = [Norm(f"norm{i}") for i in (1, 2, 3)[: 2 + across]]
        if not config.norm_first:
            norms = [Norm(f"../norm{2 + across}", first=Given()), *norms[:-1]]
        memory: Input = Norm("/encoder.norm") if config.has_encoder else Given()
        cross = _heads("multihead_attn", norms[1], name="cross", memory=memory)
        return [_heads("self_attn", norms[0]), *([cross] if across else []), *mlp("linear1", "linear2", norms[-1])]

    return Family({path: layer(across) for path, across in config.lists.items()}, kind="vectors")


def _heads(at: str, input: str | Input, output: str = "out_proj", **more: Any) -> Heads:
    input = Norm(input) if isinstance(input, str) else input
    return Heads(at=at, maps=maps(at, "q_proj", "k_proj", "v_proj", output), input=input, **more)


def _fused(at: str, inputs: str, output: str, input: Input, **more: Any) -> Heads:
    return Heads(at=at, maps=maps(at, inputs, inputs, inputs, output), input=input, **more)


_FAMILIES: dict[str, Family | Callable[[Any], Family]] = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert"), _bert),
    "mpnet": _mpnet,
    "distilbert": _distilbert,
    "modernbert": _modernbert,
    "gpt2": _gpt2,
    "gpt_neo": _gpt_neo,
    "gptj": _gptj,
    "opt": _opt,
    "gpt_neox": _gpt_neox,
    "phi": _phi,
    "phi3": _phi3,
    **dict.fromkeys(("llama", "mistral", "ministral3", "qwen2", "gemma"), _llama),
    **dict.fromkeys(("smollm3", "granite", "stablelm"), _llama),
    "qwen3": _qwen3,
    "gemma2": partial(_llama, before_mlp="pre_feedforward_layernorm"),
    "gemma3_text": _gemma3,
    **dict.fromkeys(("cohere", "cohere2"), partial(_llama, before_mlp="input_layernorm")),
    **dict.fromkeys(("mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss"), _experts),
    **dict.fromkeys(("t5", "mt5", "umt5"), _t5),
    "bart": _bart,
    **dict.fromkeys(("mbart", "pegasus", "m2m_100"), _mbart),
    **dict.fromkeys(("vit", "deit"), _vit),
    **dict.fromkeys(("dinov2", "dinov2_with_registers"), _dinov2),
    **dict.fromkeys(("clip", "clip_text_model", "clip_vision_model", "siglip", "siglip_vision_model"), _clip),
    "whisper": _whisper,
    **dict.fromkeys(("TransformerEncoder", "TransformerDecoder", "Transformer", "MultiheadAttention"), _torch),
}


def register_family(model_type: str, family: Family) -> None:
    """Add a family under its configuration's `model_type`."""
    if not isinstance(family, Family):
        raise ValueError(f"register_family needs a Family; got {type(family).__name__}.")
    _FAMILIES[model_type] = family


def run_families(file: Path) -> None:
    """Run a user's Python file that registers families."""
    try:
        runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        # It is arbitrary code and may raise anything.
        raise StrongTicketError(f"{file} cannot be run ({type(error).__name__}: {first_line(error)}).") from error


def is_known(config: Any) -> bool:
    """Tell whether a configuration is of a family that is registered."""
    return getattr(config, "model_type", "") in _FAMILIES


def family_of(config: Any, parts: Parts = "merged") -> Family:
    """Return a model's family, or raise with the reason why its attention cannot be pruned into.

    Args:
        config: a Hugging Face configuration, or the one made by `opened`.
        parts: as in `construct_pretrained`.
    """
    name = getattr(config, "model_type", "")
    if not is_known(config):
        reason = why_not_merged(config)
        raise StrongTicketError(
            f"unknown family {name!r}; `strongticket construct --model ... --describe` prints a skeleton for it, see "
            f"docs/adding-a-model.md. {f'Note that {name} {reason} ' if reason else ''}"
            f"Known are {', '.join(sorted(_FAMILIES))}."
        )
    family = _FAMILIES[name]
    family = family if isinstance(family, Family) else family(config)
    for chosen in family.chosen("attention", parts).values():
        for part in chosen:
            part.check(config)
    return family
