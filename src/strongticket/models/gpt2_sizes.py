"""The settings and sizes of GPT-2; without torch, which only the model itself needs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

Group = Literal["attention", "mlp", "embeddings", "norms", "head", "biases"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GPT2Config:
    """The settings of a GPT-2; `SIZES` has the usual ones."""

    n_layers: int
    d_model: int
    n_heads: int
    context: int = 1024  # the most tokens it can see
    vocabulary: int = 50257
    bias: bool = True  # in the linear layers and the norms
    tied: bool = True  # the token embedding is also the output head
    activation: Literal["gelu", "relu"] = "gelu"
    dropout: float = 0.0
    norm_epsilon: float = 1e-5
    # Multiplies the last norm's output: tied embeddings of std 0.02 limit the logits. As a constant, it is not trained.
    output_gain: float = 1.0

    def __post_init__(self) -> None:
        sizes = (self.n_layers, self.d_model, self.n_heads, self.context, self.vocabulary)
        if min(sizes) < 1 or self.d_model % self.n_heads:
            raise ValueError(f"a GPT-2 needs positive sizes and d_model a multiple of n_heads; got {self}.")
        if self.activation not in ("gelu", "relu"):
            raise ValueError(f"activation must be gelu or relu; got {self.activation!r}.")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1); got {self.dropout}.")

    @property
    def key_width(self) -> int:
        """$n_K$, the width of one head."""
        return self.d_model // self.n_heads


SIZES: Mapping[str, GPT2Config] = {
    "nano": GPT2Config(n_layers=2, d_model=64, n_heads=2, context=128, vocabulary=256),
    "mini": GPT2Config(n_layers=4, d_model=512, n_heads=8),
    "small": GPT2Config(n_layers=12, d_model=768, n_heads=12),
    "medium": GPT2Config(n_layers=24, d_model=1024, n_heads=16),
}


HEADS = (64, 32, 16)  # head widths that suit kernels; GPT-2's own is the first


def gpt2_config(size: str, **changes: Any) -> GPT2Config:
    """Look up a size, or make one from LAYERSxWIDTH, and change some of its settings.

    Example:
        >>> gpt2_config("mini", output_gain=4.0).key_width
        64
        >>> gpt2_config("5x160").n_heads
        5
    """
    if size in SIZES:
        return replace(SIZES[size], **changes)
    if not (asked := re.fullmatch(r"([1-9]\d{0,2})x([1-9]\d{0,4})", size)):
        raise ValueError(f"unknown GPT-2 size {size!r}; choose {', '.join(SIZES)}, or LAYERSxWIDTH such as 5x160.")
    n_layers, width = map(int, asked.groups())
    if (key := next((key for key in HEADS if width % key == 0), None)) is None:
        raise ValueError(f"the width of a GPT-2 must be a multiple of {HEADS[-1]}; got {width} in {size!r}.")
    return GPT2Config(**{"n_layers": n_layers, "d_model": width, "n_heads": width // key, **changes})
