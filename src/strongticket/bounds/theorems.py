r"""The paper's existence theorems, each as a `Bound` or `Stack` that answers both questions.

"paper" is the paper's statement; closing the gaps of its proof does not change the widths. "tight" follows from the
same corollary with the softmax lemma $2 \tanh(s/2)$, spectral norms in place of $\sqrt{d}$ times largest entries, and
error and probability kept apart. `docs/theory.md`, sections 5 and 6, proves both and rules out values of C.

All functions share these arguments:
    d_model, d_out: $d_1$ and $d_2$; blocks map $d_1$ to $d_1$.
    n_heads, layers, blocks: $H$, the layers $L$ of a target's feed-forward network, the blocks $B$ of a transformer.
    hidden: the size of that network's hidden layers; by default $d_1$.
    input_norm: $\alpha$. The paper's theorems assume a large one; a smaller one is raised to that, and a note says so.
    constant: $C$. Its value is not known; by default, the smallest one that is not ruled out for each width.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import log

from strongticket.bounds.checks import Variant, check_counts, check_positive, check_variant
from strongticket.bounds.widths import LEAST_CONSTANT_LINEAR, LEAST_CONSTANT_RELU, Bound, Requirement, Stack


def linear_bound(*, d_model: int, d_out: int, constant: float | None = None) -> Bound:
    r"""Lemmas 4 and 7: two pruned random matrices for one matrix; $n \ge d_1 C \log(d_1 d_2 / \varepsilon)$.

    No entry is off by more than $\varepsilon / d_1 d_2$, hence $\|W - S\| \le \varepsilon / \sqrt{d_1 d_2}$.

    Example:
        >>> bound = linear_bound(d_model=64, d_out=64, constant=7.0)
        >>> bound.widths(0.01)
        {'hidden_width': 5824}
        >>> bound.error({"hidden_width": 5824}) <= 0.01
        True
    """
    check_counts(d_model=d_model, d_out=d_out)
    d1, d2 = d_model, d_out
    line = _linear("hidden_width", blocks=d1, sums=d1 * d2, log_scale=log(d1 * d2), constant=constant)
    return Bound(statement="Lemma 7", requirements=(line,))


def relu_bound(
    *, d_model: int, d_out: int, input_norm: float = 1.0, variant: Variant = "paper", constant: float | None = None
) -> Bound:
    r"""Lemma 2: two random layers with a ReLU between them for one layer; $\|F_S(x) - F_T(x)\| \le \varepsilon$.

    paper: $n \ge d_1 C \log(2 d_1 d_2 \alpha / \varepsilon)$, where $\alpha < 1$ counts as 1, as in the lemma.
    tight: $n \ge d_1 C \log(\max(\alpha \sqrt{d_1 d_2}, 2 d_1 d_2) / \varepsilon)$.
    """
    check_counts(d_model=d_model, d_out=d_out)
    check_positive(input_norm=input_norm)
    check_variant(variant)
    d1, d2, alpha = d_model, d_out, input_norm
    sums = 2 * d1 * d2
    scale = sums * max(alpha, 1.0) if variant == "paper" else max(alpha * math.sqrt(d1 * d2), sums)
    line = _relu(blocks=d1, sums=sums, log_scale=log(scale), constant=constant)
    return Bound(statement="Lemma 2", requirements=(line,), input_norm=alpha)


def feedforward_bound(
    dims: Sequence[int], *, input_norm: float = 1.0, variant: Variant = "paper", constant: float | None = None
) -> Stack:
    r"""Theorem 10: a network of $2L$ random layers for one of $L$ layers, of sizes `dims` $d_1, \dots, d_{L+1}$.

    paper: $n_l \ge d_l C \log(4 L d_l d_{l+1} / \varepsilon')$ for an error of $e^{\alpha \varepsilon' / 2} - 1$, where
    $\alpha \ge 1$.
    tight: $n_l \ge d_l C \log(L \max((\alpha + 1) \sqrt{d_l d_{l+1}}, 2 d_l d_{l+1}) / \varepsilon)$.
    """
    if len(dims) < 2:
        raise ValueError(f"dims must contain at least an input and an output size; got {list(dims)}.")
    check_counts(**{f"dims[{i}]": d for i, d in enumerate(dims)})
    check_positive(input_norm=input_norm)
    alpha, notes = _covered_norm(input_norm, 1.0, "Theorem 10", variant)
    L = len(dims) - 1
    parts = []
    for d1, d2 in pairwise(dims):
        scale = 4 * L * d1 * d2 if variant == "paper" else L * max((alpha + 1) * math.sqrt(d1 * d2), 2 * d1 * d2)
        line = _relu(blocks=d1, sums=2 * d1 * d2, log_scale=log(scale), constant=constant)
        if variant == "paper":
            line = replace(line, growth=alpha)
        parts.append(Bound(statement="Theorem 10", requirements=(line,), input_norm=alpha, notes=notes))
    return Stack(statement="Theorem 10", parts=tuple(parts))


def attention_bound(
    *,
    d_model: int,
    d_out: int,
    n_heads: int = 1,
    input_norm: float = 1.0,
    variant: Variant = "paper",
    constant: float | None = None,
) -> Bound:
    r"""Theorems 3 and 9: a pruned random attention for any attention with weights of norm at most 1.

    paper: $n_K \ge d_1 C \log(8 H \alpha^3 d_1^{3/2} / \varepsilon)$ and
    $n_V \ge d_1 C \log(2 H \alpha d_1 \sqrt{d_2} / \varepsilon)$, where $\alpha \ge \max(\sqrt{d_1}, \sqrt{d_2})$.
    tight: $n_K \ge d_1 C \log(2 H \max(\alpha^3 d_1, d_1^2) / \varepsilon)$ and
    $n_V \ge d_1 C \log(2 H \max(\alpha \sqrt{d_1 d_2}, d_1 d_2) / \varepsilon)$, for any $\alpha$.

    Example:
        >>> settings = dict(d_model=64, d_out=64, n_heads=4, input_norm=8.0, constant=7.0)
        >>> attention_bound(**settings).widths(0.01)
        {'key_width': 9216, 'value_width': 6784}
        >>> attention_bound(**settings, variant="tight").widths(0.01)
        {'key_width': 7680, 'value_width': 6784}
    """
    check_counts(d_model=d_model, d_out=d_out, n_heads=n_heads)
    check_positive(input_norm=input_norm)
    alpha, notes = _covered_norm(input_norm, math.sqrt(max(d_model, d_out)), "Theorem 9", variant)
    lines = _attention_lines(d_model, d_out, n_heads, log(alpha), variant, constant)
    return Bound(statement="Theorem 9", requirements=lines, input_norm=alpha, notes=notes)


def block_bound(
    *,
    d_model: int,
    n_heads: int = 1,
    layers: int = 1,
    hidden: int | None = None,
    input_norm: float = 1.0,
    variant: Variant = "paper",
    constant: float | None = None,
) -> Bound:
    r"""Theorem 11: a random block for a target block without normalisation.

    In the paper, all sizes of the feed-forward network are $d_1$; `hidden` $h$ sets another size of its hidden
    layers, as in $d \to 4d \to d$. Then $d_1^2$ in the last line is the largest $d_l d_{l+1}$, and the width is divided
    into $\max(d_1, h)$ blocks.

    paper: $n_{MHA} \ge d_1 C \log(32 \alpha^3 H d_1^{3/2} / \varepsilon)$ for key and value, and
    $n_{FC} \ge d_1 C \log(24 \alpha L H d_1^{5/2} / \varepsilon)$, where $\alpha \ge \sqrt{d_1}$.
    tight: a quarter of $\varepsilon$ to the attention of `attention_bound`, and
    $n_{FC} \ge d_1 C \log(L \max((2 \alpha (1 + H) + 3/2) d_1, 4 d_1^2) / \varepsilon)$.
    """
    check_counts(d_model=d_model, n_heads=n_heads, layers=layers)
    sizes = _network_sizes(d_model, layers, hidden)
    check_positive(input_norm=input_norm)
    alpha, notes = _covered_norm(input_norm, math.sqrt(d_model), "Theorem 11", variant)
    lines = _block_lines(sizes, n_heads, log(alpha), variant, constant)
    return Bound(statement="Theorem 11", requirements=lines, input_norm=alpha, notes=notes)


def transformer_bound(
    *,
    d_model: int,
    blocks: int,
    n_heads: int = 1,
    layers: int = 1,
    hidden: int | None = None,
    input_norm: float = 1.0,
    variant: Variant = "paper",
    constant: float | None = None,
) -> Stack:
    r"""Theorems 6 and 14: a random transformer for a target without normalisation; Theorem 11 for each block.

    Block $b$ may use only a share of $\varepsilon$, because the blocks after it magnify its error.
    paper: inputs of norm $\beta_1 = \alpha$, then $2 \beta_b$ with $\beta_b = \alpha (4 H \sqrt{d_1})^{b-1}$; share
    $1 / 2 \prod_{j > b} 32 H \sqrt{d_1} \beta_j^2$ (twice that for the first block).
    tight: inputs of norm $a_1 = \alpha$, then $a_b + 1/8$ with $a_b = \alpha (2 + 2 H)^{b-1}$; each factor of the
    product is $4 (1 + H + H a_j (2 a_j + 1/8))$.
    """
    check_counts(d_model=d_model, blocks=blocks, n_heads=n_heads, layers=layers)
    sizes = _network_sizes(d_model, layers, hidden)
    check_positive(input_norm=input_norm)
    d, H, B = d_model, n_heads, blocks
    alpha, notes = _covered_norm(input_norm, math.sqrt(d), "Theorem 14", variant)
    log_step = log(4 * H * math.sqrt(d)) if variant == "paper" else log(2 + 2 * H)
    log_norms = [log(alpha) + b * log_step for b in range(B)]
    log_factors = [_log_magnification(d, H, log_norm, variant) for log_norm in log_norms]
    parts = []
    for b in range(B):
        log_input, log_share = log_norms[b], sum(log_factors[b + 1 :])
        if b > 0:
            # The first block has exact inputs; the others must divide their error with that of their inputs.
            log_input = log(2) + log_input if variant == "paper" else _log_sum(log_input, log(1 / 8))
            log_share += log(2)
        lines = _block_lines(sizes, H, log_input, variant, constant)
        lines = tuple(replace(line, log_scale=line.log_scale + log_share) for line in lines)
        parts.append(Bound(statement="Theorem 14", requirements=lines, input_norm=alpha, notes=notes))
    return Stack(statement="Theorem 14", parts=tuple(parts))


def _line(name: str, least: float, *, blocks: int, sums: int, log_scale: float, constant: float | None) -> Requirement:
    """Fill in C; by default, the smallest value that is not ruled out."""
    C = least if constant is None else constant
    check_positive(constant=C)
    return Requirement(name=name, blocks=blocks, sums=sums, log_scale=log_scale, constant=C)


_linear = partial(_line, least=LEAST_CONSTANT_LINEAR)
_relu = partial(_line, "hidden_width", LEAST_CONSTANT_RELU)


def _attention_lines(
    d1: int, d2: int, H: int, log_alpha: float, variant: Variant, constant: float | None
) -> tuple[Requirement, Requirement]:
    if variant == "paper":
        log_key = log(8 * H) + 3 * log_alpha + 1.5 * log(d1)
        log_value = log(2 * H) + log_alpha + log(d1) + 0.5 * log(d2)
    else:
        log_key = log(2 * H) + max(3 * log_alpha + log(d1), 2 * log(d1))
        log_value = log(2 * H) + max(log_alpha + 0.5 * log(d1 * d2), log(d1 * d2))
    return (
        _linear("key_width", blocks=d1, sums=H * d1 * d1, log_scale=log_key, constant=constant),
        _linear("value_width", blocks=d1, sums=H * d1 * d2, log_scale=log_value, constant=constant),
    )


def _network_sizes(d: int, layers: int, hidden: int | None) -> list[int]:
    """List the sizes of a target's feed-forward network from d to d."""
    check_counts(hidden=d if hidden is None else hidden)
    return [d, *[d if hidden is None else hidden] * (layers - 1), d]


def _block_lines(
    sizes: Sequence[int], H: int, log_alpha: float, variant: Variant, constant: float | None
) -> tuple[Requirement, ...]:
    d, L, layers = sizes[0], len(sizes) - 1, [d1 * d2 for d1, d2 in pairwise(sizes)]
    key, value = (
        replace(line, log_scale=line.log_scale + log(4))
        for line in _attention_lines(d, d, H, log_alpha, variant, constant)
    )
    if variant == "paper":
        # The paper uses one n_MHA for both; the keys require the larger one.
        value = replace(value, log_scale=key.log_scale)
        log_hidden = log(24 * L * H) + log_alpha + 0.5 * log(d) + log(max(layers))
    else:
        log_norm = _log_sum(log(2 + 2 * H) + log_alpha, log(1.5))
        log_hidden = log(L) + max(log_norm + 0.5 * log(max(layers)), log(4 * max(layers)))
    return key, value, _relu(blocks=max(sizes), sums=2 * sum(layers), log_scale=log_hidden, constant=constant)


def _log_magnification(d: int, H: int, log_norm: float, variant: Variant) -> float:
    """Return the logarithm of the ratio of the error allowed after a block to that allowed before it."""
    if variant == "paper":
        return log(32 * H * math.sqrt(d)) + 2 * log_norm
    log_pair = log_norm + _log_sum(log(2) + log_norm, log(1 / 8))
    return log(4) + _log_sum(log(1 + H), log(H) + log_pair)


def _covered_norm(input_norm: float, least: float, statement: str, variant: Variant) -> tuple[float, tuple[str, ...]]:
    """Return the norm to compute with, and a note if the paper's statement needs a larger one than requested."""
    check_variant(variant)
    if variant == "tight" or input_norm >= least:
        return input_norm, ()
    return least, (f"computed for input norm {least:g}, the least that {statement} covers, not {input_norm:g}.",)


def _log_sum(log_x: float, log_y: float) -> float:
    """Return log(x + y) from log(x) and log(y), without overflow."""
    low, high = sorted((log_x, log_y))
    return high + math.log1p(math.exp(low - high))
