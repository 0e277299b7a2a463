"""Small models of several kinds, a batch for each to overfit, and a few steps of edge-popup."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from strongticket.learn.hidden import Hidden
from strongticket.models.gpt2 import GPT2, gpt2_config

TOKENS = torch.randint(256, (4, 33), generator=torch.Generator().manual_seed(0))
IMAGES = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(0))
CLASSES = torch.arange(8) % 4


def nano(**changes: Any) -> GPT2:
    return GPT2(gpt2_config("nano", **({"bias": False} | changes)), seed=3)


def hugging_face_gpt2(**changes: Any) -> nn.Module:
    """GPT-2 nano's sizes, without dropout, since training and evaluation are compared."""
    transformers = pytest.importorskip("transformers", reason="Hugging Face's GPT-2 needs transformers")
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 2, "n_positions": 128, "vocab_size": 256}
    no_dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    torch.manual_seed(0)
    model: nn.Module = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **no_dropout, **changes))
    return model


class QkvAttention(nn.Module):
    """As in timm: query, key and value from one linear layer."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(F.scaled_dot_product_attention(*qkv).transpose(1, 2).flatten(2))


class TorchAttention(nn.Module):
    """torch's own module, which holds its weights itself."""

    def __init__(self, dim: int, num_heads: int) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(dim, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


class VisionTransformer(nn.Module):
    """Patches of 4 x 4, a class token, learnt positions, two blocks, a classifier."""

    def __init__(self, attention: Callable[[int, int], nn.Module], dim: int = 32, num_heads: int = 2) -> None:
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, 4, stride=4)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos_embed = nn.Parameter(0.02 * torch.randn(1, 5, dim))
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(dim),
                    "attn": attention(dim, num_heads),
                    "norm2": nn.LayerNorm(dim),
                    "mlp": nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim)),
                }
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, 4)

    def forward(self, images: Tensor) -> Tensor:
        patches = self.patch_embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(len(images), -1, -1), patches], dim=1) + self.pos_embed
        for block in self.blocks:
            x = x + block["attn"](block["norm1"](x))
            x = x + block["mlp"](block["norm2"](x))
        return self.head(self.norm(x)[:, 0])


def vision_transformer(attention: Callable[[int, int], nn.Module] = QkvAttention) -> VisionTransformer:
    torch.manual_seed(0)
    return VisionTransformer(attention)


def loss_of(model: nn.Module) -> Tensor:
    """The loss on the model's own batch."""
    if type(model).__name__.endswith("VisionTransformer"):
        return F.cross_entropy(model(IMAGES), CLASSES)
    if isinstance(model, GPT2):
        return model(TOKENS[:, :-1], TOKENS[:, 1:])
    loss: Tensor = model(TOKENS, labels=TOKENS).loss
    return loss


def output_of(model: nn.Module) -> Tensor:
    """The logits on the model's own batch."""
    with torch.no_grad():
        if type(model).__name__.endswith("VisionTransformer"):
            return model(IMAGES)
        out = model(TOKENS)
        return out if isinstance(out, Tensor) else out.logits


def search(hidden: Hidden, steps: int = 12, lr: float = 0.02) -> list[float]:
    """Train scores and trained tensors; give the losses."""
    optimizer, losses = torch.optim.AdamW([p for _, p in hidden.trainable()], lr=lr), []
    for _ in range(steps):
        loss = loss_of(hidden.model)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        hidden.after_step()
        losses.append(loss.item())
    return losses
