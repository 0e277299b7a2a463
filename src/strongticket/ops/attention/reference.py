"""Attention of one token, in float64."""

import torch
from torch import Tensor


def attend(qkv: Tensor, past: Tensor, place: int) -> Tensor:
    """Keep a token's key and value at its place, and mix all values up to it.

    Args:
        qkv: its query, key and value, (3, H, w).
        past: keys and values of each place, (room, 2, H, w), changed.
        place: how many tokens are before it.

    Returns:
        (H, w), float64.
    """
    past[place] = qkv[1:]
    query, (keys, values) = qkv[0].double(), past[: place + 1].double().unbind(1)
    scores = torch.einsum("hw,thw->ht", query, keys) / query.shape[1] ** 0.5
    return torch.einsum("ht,thw->hw", scores.softmax(1), values)
