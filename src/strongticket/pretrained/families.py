"""Which parts the layers of each family of models have. `docs/adding-a-model.md` shows how to describe one more."""

import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from strongticket.errors import StrongTicketError, first_line
from strongticket.pretrained.heads import Heads, why_not_merged
from strongticket.pretrained.parts import Behind, Norm, Part, ReluPair

What = Literal["attention", "attention+mlp"]
Kind = Literal["encoder", "causal", "image"]


@dataclass(frozen=True, slots=True)
class Family:
    """What the layers of some models are made of.

    Args:
        layers: by the path of a list of layers, below the model's backbone, the parts that each of them has.
        kind: what the model reads, and whether it predicts the next token.
        positions: the table of position embeddings, which limits how long a text may be, or "" if there is no limit.
    """

    layers: Mapping[str, Sequence[Part]]
    kind: Kind = "encoder"
    positions: str = ""

    def __post_init__(self) -> None:
        for parts in self.layers.values():
            names = [part.name for part in parts]
            if len(set(names)) < len(names):
                raise ValueError(f"each part of a layer needs a name of its own; got {', '.join(names)}.")
            for part in parts:
                for source in (getattr(part.input, field.name) for field in fields(part.input)):
                    if isinstance(source, Part) and source not in parts:
                        raise ValueError(f"{part.name} reads what {source.name} gives, which is no part of the layer.")

    def chosen(self, what: What) -> dict[str, list[Part]]:
        """Give the parts that a ticket stands for."""
        return {
            path: [part for part in parts if what == "attention+mlp" or not part.name.startswith("mlp")]
            for path, parts in self.layers.items()
        }


_BERT_LAYER = [
    Heads(
        at="attention.self",
        maps=("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"),
        input=Norm("output.LayerNorm", first="embeddings.LayerNorm"),
        all_heads_size="all_head_size",
    ),
    up := ReluPair("mlp.up", "intermediate.dense", Norm("attention.output.LayerNorm")),
    ReluPair("mlp.down", "output.dense", Behind(up)),
]
_BERT = Family({"encoder.layer": _BERT_LAYER}, positions="embeddings.position_embeddings")

_GPT2_LAYER = [
    Heads(
        at="attn",
        maps=("attn.c_attn", "attn.c_attn", "attn.c_attn", "attn.c_proj"),
        input=Norm("ln_1"),
        head_size="head_dim",
        all_heads_size="split_size",
    ),
    up := ReluPair("mlp.up", "mlp.c_fc", Norm("ln_2")),
    ReluPair("mlp.down", "mlp.c_proj", Behind(up, activation="activation_function")),
]
_GPT2 = Family({"h": _GPT2_LAYER}, kind="causal", positions="wpe")

_VIT_LAYER = [
    Heads(
        at="attention",
        maps=("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
        input=Norm("layernorm_before"),
        head_size="head_dim",
    ),
    up := ReluPair("mlp.up", "mlp.fc1", Norm("layernorm_after")),
    ReluPair("mlp.down", "mlp.fc2", Behind(up)),
]
_VIT = Family({"layers": _VIT_LAYER}, kind="image")

_FAMILIES: dict[str, Family] = {"bert": _BERT, "roberta": _BERT, "xlm-roberta": _BERT, "gpt2": _GPT2, "vit": _VIT}


def register_family(model_type: str, family: Family) -> None:
    """Add a family, named as its configuration's `model_type`."""
    if not isinstance(family, Family):
        raise ValueError(f"register_family needs a Family; got {type(family).__name__}.")
    _FAMILIES[model_type] = family


def run_families(file: Path) -> None:
    """Run a Python file of one's own that registers families."""
    try:
        runpy.run_path(str(file))
    except (Exception, SystemExit) as error:
        # It may raise anything, since it is anybody's code.
        raise StrongTicketError(f"{file} cannot be run ({type(error).__name__}: {first_line(error)}).") from error


def family_of(config: Any) -> Family:
    """Give a model's family, or say why its attention cannot be pruned into.

    Args:
        config: a Hugging Face configuration.
    """
    name = getattr(config, "model_type", "")
    if name not in _FAMILIES:
        reason = why_not_merged(config)
        raise StrongTicketError(
            f"no family {name!r} is known; there are {', '.join(sorted(_FAMILIES))}. "
            "docs/adding-a-model.md shows how to describe one." + (f" Note that {name} {reason}" if reason else "")
        )
    for parts in _FAMILIES[name].chosen("attention").values():
        for part in parts:
            part.check(config)
    return _FAMILIES[name]
