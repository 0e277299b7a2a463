r"""How far an output moves when something inside moves: Lemmas 5/8, 12 and 13, and their inverses.

`docs/theory.md`, sections 2 to 4, proves everything here. Results are rounded up, inverses down. In Lemmas 12 and 13
the target's matrices have norm at most 1, as in the paper; `certificate.py` uses their actual norms.
"""

import math
from collections.abc import Callable
from functools import partial

from strongticket.bounds.checks import Variant, check_counts, check_norms, check_positive, check_variant
from strongticket.bounds.upward import LIBRARY_SLACK, Up, up_expm1, up_sqrt, up_tanh


def softmax_shift(score_error: float) -> float:
    r"""Bound how far attention weights move, in 1-norm, when no score moves by more than $s$.

    $\|p - p'\|_1 \le 2 \tanh(s/2)$, for any number of scores and any attention mask. Two scores attain it.

    Example:
        >>> 1.5231 < softmax_shift(2.0) < 1.5232
        True
    """
    check_norms(score_error=score_error)
    return up_shift(Up(score_error)).value


def softmax_error(score_error: float, *, input_norm: float, d_model: int, variant: Variant = "tight") -> float:
    r"""Bound how far $\sigma(\cdot) X$ moves when no score moves by more than $s$ (Lemma 8).

    tight: $2 \alpha \tanh(s/2)$. paper: $\sqrt{d_1} \alpha (e^{2s} - 1)$, which for $s \le 1/2$ is at most the
    $4 \sqrt{d_1} \alpha s$ of Lemma 5.

    Args:
        score_error: $s$.
        input_norm: $\alpha$, at least the norm of every row of $X$.
        d_model: $d_1$; only the paper's form depends on it.
        variant: "tight" or "paper".
    """
    check_norms(score_error=score_error, input_norm=input_norm)
    check_counts(d_model=d_model)
    return (Up(input_norm) * up_softmax(Up(score_error), variant, d_model)).value


def small_softmax_error(score_error: float, *, input_norm: float, d_model: int) -> float:
    r"""Bound the same by $4 \sqrt{d_1} \alpha s$, which holds for $s \le 1/2$ (Lemma 5).

    Arguments are as in `softmax_error`.
    """
    check_norms(score_error=score_error, input_norm=input_norm)
    check_counts(d_model=d_model)
    if score_error > 0.5:
        raise ValueError(f"Lemma 5 needs a score error of at most 1/2; got {score_error}. Lemma 8 has no such limit.")
    return (4 * up_sqrt(d_model) * Up(input_norm) * Up(score_error)).value


def largest_score_error(tol: float, *, input_norm: float, d_model: int, variant: Variant = "tight") -> float:
    r"""Return the score error $s$ at which `softmax_error` reaches `tol`, rounded down; infinity if none does.

    tight: $2 \operatorname{artanh}(\varepsilon / 2 \alpha)$. paper: $\log(1 + \varepsilon / \sqrt{d_1} \alpha) / 2$.
    """
    check_positive(tol=tol, input_norm=input_norm)
    check_counts(d_model=d_model)
    check_variant(variant)
    if variant == "paper":
        s = math.log1p(tol / (math.sqrt(d_model) * input_norm)) / 2
    elif tol < 2 * input_norm:
        s = 2 * math.atanh(tol / (2 * input_norm))
    else:
        return math.inf
    # artanh is steep near 1, where rounding the argument costs more than the slack; the last digits are then searched.
    s /= LIBRARY_SLACK**4
    forward = softmax_error(s, input_norm=input_norm, d_model=d_model, variant=variant)
    if forward <= tol:
        return s
    return largest(partial(softmax_error, input_norm=input_norm, d_model=d_model, variant=variant), tol)


def attention_drift(
    input_error: float, *, d_model: int, n_heads: int, input_norm: float, variant: Variant = "tight"
) -> float:
    r"""Bound how far a target's attention moves when each of its inputs moves by at most $\delta$ (Lemma 12).

    paper: $H \sqrt{d_1} (\alpha (e^{4 \alpha \delta} - 1) + \delta)$.
    tight: $H (2 \alpha \tanh(\alpha \delta) + \delta)$.

    Args:
        input_error: $\delta$.
        d_model: $d_1$; only the paper's form depends on it.
        n_heads: $H$.
        input_norm: $\alpha$, at least the norm of every input, moved or not.
        variant: "tight" or "paper".
    """
    check_norms(input_error=input_error, input_norm=input_norm)
    check_counts(d_model=d_model, n_heads=n_heads)
    return _attention_drift(Up(input_error), d_model, n_heads, Up(input_norm), variant).value


def block_drift(
    input_error: float, *, d_model: int, n_heads: int, input_norm: float, variant: Variant = "tight"
) -> float:
    r"""Bound how far a target's block moves when each of its inputs moves by at most $\delta$ (Lemma 13).

    Twice `attention_drift` plus $2 \delta$: the paper's proof ends with this factor 2, but its statement omits it.
    Arguments are as in `attention_drift`.
    """
    check_norms(input_error=input_error, input_norm=input_norm)
    check_counts(d_model=d_model, n_heads=n_heads)
    delta = Up(input_error)
    return (2 * (_attention_drift(delta, d_model, n_heads, Up(input_norm), variant) + delta)).value


def largest_attention_input_error(
    tol: float, *, d_model: int, n_heads: int, input_norm: float, variant: Variant = "tight"
) -> float:
    """Find by bisection the largest input error that keeps `attention_drift` within `tol`."""
    check_positive(tol=tol, input_norm=input_norm)
    drift = partial(attention_drift, d_model=d_model, n_heads=n_heads, input_norm=input_norm, variant=variant)
    return largest(drift, tol)


def largest_block_input_error(
    tol: float, *, d_model: int, n_heads: int, input_norm: float, variant: Variant = "tight"
) -> float:
    """Find by bisection the largest input error that keeps `block_drift` within `tol`."""
    check_positive(tol=tol, input_norm=input_norm)
    drift = partial(block_drift, d_model=d_model, n_heads=n_heads, input_norm=input_norm, variant=variant)
    return largest(drift, tol)


def up_shift(s: Up) -> Up:
    """Return 2 tanh(s/2), rounded up."""
    return Up(min(s.value, 2 * up_tanh(s * 0.5).value))


def up_softmax(s: Up, variant: Variant, d_model: int | None) -> Up:
    """Return the factor of the input norm in Lemma 8, rounded up: 2 tanh(s/2), or the paper's form."""
    check_variant(variant)
    if variant == "tight":
        return up_shift(s)
    if d_model is None:
        raise ValueError('variant "paper" needs d_model; got none. Pass d_model=..., or use variant "tight".')
    check_counts(d_model=d_model)
    return up_sqrt(d_model) * up_expm1(2 * s)


def largest(function: Callable[[float], float], tol: float) -> float:
    """Find the largest float x with function(x) <= tol, for a function that increases from 0 to above tol."""
    low, high = 0.0, tol
    while function(high) <= tol:
        low, high = high, 2 * high
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (middle, high) if function(middle) <= tol else (low, middle)
    return low


def _attention_drift(delta: Up, d: int, H: int, alpha: Up, variant: Variant) -> Up:
    score_error = 2 * alpha * delta
    moved = alpha * up_softmax(score_error, variant, d)
    through = delta if variant == "tight" else up_sqrt(d) * delta
    return H * (moved + through)
