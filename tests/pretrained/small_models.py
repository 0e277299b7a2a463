"""Small random models of each family, as they come from transformers."""

import copy
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    RobertaConfig,
    RobertaModel,
    ViTConfig,
    ViTModel,
)

VOCABULARY = 60
FAMILIES = ("bert", "gpt2", "vit")


def seeded(make: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Let a constructor draw the same weights whatever was drawn before."""

    @wraps(make)
    def made(**settings: Any) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make(**settings)

    return made


@seeded
def make_bert(**settings: Any) -> nn.Module:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    return BertModel(BertConfig(vocab_size=VOCABULARY, **{**sizes, **settings}))


@seeded
def make_roberta(**settings: Any) -> nn.Module:
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    return RobertaModel(RobertaConfig(vocab_size=VOCABULARY, **{**sizes, **settings}))


@seeded
def make_gpt2(**settings: Any) -> nn.Module:
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_inner": 24, "n_positions": 32}
    special = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, **special, **{**sizes, **settings}))


@seeded
def make_vit(**settings: Any) -> nn.Module:
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 20}
    return ViTModel(ViTConfig(image_size=8, patch_size=4, **{**sizes, **settings}))


MAKERS = {"bert": make_bert, "gpt2": make_gpt2, "vit": make_vit}


def randomize(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every parameter a size a trained one could have: biases that are not 0, norms that are not 1."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.15 * torch.randn(parameter.shape, generator=generator)
    model.set_attn_implementation("eager")
    return model.eval()


def small(family: str) -> nn.Module:
    """Give the family's model, each time a new one: transformers itself leaves hooks in a model that shows its maps."""
    return copy.deepcopy(_made(family))


@cache
def _made(family: str) -> nn.Module:
    return randomize(MAKERS[family]())


def inputs(family: str, seed: int = 1) -> dict[str, Tensor]:
    """Give a batch the family's model reads, with padding where it can have some."""
    generator = torch.Generator().manual_seed(seed)
    if family == "vit":
        return {"pixel_values": torch.randn(3, 3, 8, 8, generator=generator)}
    mask = torch.ones(3, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    return {"input_ids": torch.randint(VOCABULARY, (3, 7), generator=generator), "attention_mask": mask}


@torch.no_grad()
def output_of(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    """Give hidden states or logits, of tokens that are no padding."""
    result: Tensor = model(
        **{k: v.double() if k == "pixel_values" and is_double(model) else v for k, v in batch.items()}
    )[0]
    return result[batch["attention_mask"].bool()] if "attention_mask" in batch else result


def is_double(model: nn.Module) -> bool:
    return next(model.parameters()).dtype == torch.float64
