r"""The certificate: how far a pruned source is from its target, computed from norms known after pruning.

Nothing here is random and no constant is unknown. Sections 3 and 4 of `docs/theory.md` prove each step. All norms are
upper bounds on spectral norms (for vectors, Euclidean norms), and so are the results: they are rounded up.
They refer to real arithmetic; evaluating a network in float32 adds its own rounding.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from strongticket.bounds.checks import Variant, check_norms
from strongticket.bounds.perturbation import up_softmax
from strongticket.bounds.upward import Up


class _Norms:
    """Check that every number in a dataclass can be a norm."""

    __slots__ = ()

    def __post_init__(self) -> None:
        numbers = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        check_norms(**{name: value for name, value in numbers.items() if isinstance(value, int | float)})


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadNorms(_Norms):
    r"""The norms of one attention head: of its merged matrices $W_{QK}$ and $W_{VO}$ and the source's errors in them.

    A query bias is the last row $w_b$ of $W_{QK}$ for the input $[x; 1]$; a key bias changes nothing.
    """

    qk_error: float  # ||E_QK||, without the bias row
    vo_error: float  # ||E_VO||
    vo_norm: float  # ||W_VO|| of the target
    qk_norm: float = math.inf  # ||W_QK|| of the target; matters only if inputs have errors, so infinity is safe
    query_bias_error: float = 0.0  # ||e_b||
    query_bias_norm: float = 0.0  # ||w_b||


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionNorms(_Norms):
    """All heads, and the output bias, which includes the value biases."""

    heads: tuple[HeadNorms, ...]
    bias_norm: float = 0.0
    bias_error: float = 0.0  # 0 if the source keeps the bias exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearNorms(_Norms):
    r"""One layer of a feed-forward network.

    The source multiplies the positive parts of its input by $W + E^+$ and the negative parts by $W + E^-$. `error` is
    $\|[E^+ E^-]\|$; after a ReLU nothing is negative, and $\|E^+\|$ is enough.
    """

    norm: float  # ||W|| of the target
    error: float
    bias_norm: float = 0.0
    bias_error: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNorms:
    """A block without normalisation: attention, residual, feed-forward network, residual."""

    attention: AttentionNorms
    feedforward: tuple[LinearNorms, ...]


@dataclass(frozen=True, slots=True)
class Envelope(_Norms):
    """Bounds at one place in both networks."""

    norm: float  # no vector of the target is longer
    error: float = 0.0  # no vector of the source is farther from the target's


def attention_error(
    input_norm: float, heads: Sequence[HeadNorms], *, variant: Variant = "tight", d_model: int | None = None
) -> float:
    r"""Bound the distance between two attentions on the same inputs.

    $\alpha \sum_j [ 2 \tanh(s_j / 2) \|W_{VO}^{(j)}\| + \|E_{VO}^{(j)}\| ]$, where
    $s_j = \alpha (\alpha \|E_{QK}^{(j)}\| + \|e_b^{(j)}\|)$. It holds for every token of every sequence of any length,
    under any attention mask.

    Args:
        input_norm: $\alpha$, at least the norm of every input.
        heads: the norms of each head.
        variant: "tight", or "paper" to use $\sqrt{d_1} (e^{2s} - 1)$ of Lemma 8 instead of $2 \tanh(s/2)$.
        d_model: $d_1$; only the paper's form needs it.

    Example:
        >>> head = HeadNorms(qk_error=0.01, vo_norm=1.0, vo_error=0.02)
        >>> 0.1199 < attention_error(2.0, [head]) < 0.12
        True
    """
    attention = AttentionNorms(heads=tuple(heads))
    return propagate_attention(Envelope(input_norm), attention, variant=variant, d_model=d_model).error


def propagate_attention(
    inputs: Envelope, attention: AttentionNorms, *, variant: Variant = "tight", d_model: int | None = None
) -> Envelope:
    r"""Bound norm and error after an attention, before the residual is added.

    With inputs of norm at most $a$ and error at most $\delta$, and $a' = a + \delta$:
    $s_j = \delta ((a + a') \|W_{QK}\| + \|w_b\|) + a' (a' \|E_{QK}\| + \|e_b\|)$, and the error is
    $\sum_j [ 2 a \tanh(s_j / 2) \|W_{VO}\| + \delta \|W_{VO}\| + a' \|E_{VO}\| ]$.
    """
    a, delta = Up(inputs.norm), Up(inputs.error)
    a_source = a + delta
    norm, error = Up(attention.bias_norm), Up(attention.bias_error)
    for head in attention.heads:
        score_error = delta * ((a + a_source) * head.qk_norm + head.query_bias_norm)
        score_error += a_source * (a_source * head.qk_error + head.query_bias_error)
        error += (a * up_softmax(score_error, variant, d_model) + delta) * head.vo_norm + a_source * head.vo_error
        norm += a * head.vo_norm
    return Envelope(norm.value, error.value)


def propagate_feedforward(inputs: Envelope, layers: Sequence[LinearNorms]) -> Envelope:
    r"""Bound norm and error after $W_L \mathrm{ReLU}(\dots \mathrm{ReLU}(W_1 x + b_1) \dots) + b_L$ (Theorem 10).

    Layer by layer, $A \to \|W\| A + \|b\|$ and $\delta \to \|W\| \delta + \|[E^+ E^-]\| (A + \delta) + \|e_b\|$.

    Example:
        >>> layers = [LinearNorms(norm=1.0, error=0.01), LinearNorms(norm=1.0, error=0.01)]
        >>> 0.0201 < propagate_feedforward(Envelope(1.0), layers).error < 0.020101
        True
    """
    norm, error = Up(inputs.norm), Up(inputs.error)
    for layer in layers:
        error = error * layer.norm + (norm + error) * layer.error + layer.bias_error
        norm = norm * layer.norm + layer.bias_norm
    return Envelope(norm.value, error.value)


def propagate_block(
    inputs: Envelope, block: BlockNorms, *, variant: Variant = "tight", d_model: int | None = None
) -> Envelope:
    """Bound norm and error after a block, residuals included."""
    middle = _add(inputs, propagate_attention(inputs, block.attention, variant=variant, d_model=d_model))
    return _add(middle, propagate_feedforward(middle, block.feedforward))


def propagate_transformer(
    inputs: Envelope, blocks: Sequence[BlockNorms], *, variant: Variant = "tight", d_model: int | None = None
) -> list[Envelope]:
    """Bound norm and error after each block of a stack; the last is the transformer's output.

    Example:
        >>> head = HeadNorms(qk_norm=0.5, qk_error=0.0, vo_norm=1.0, vo_error=0.01)
        >>> block = BlockNorms(attention=AttentionNorms(heads=(head,)), feedforward=(LinearNorms(norm=1.0, error=0.0),))
        >>> [round(envelope.error, 4) for envelope in propagate_transformer(Envelope(1.0), [block, block])]
        [0.02, 0.8017]
    """
    envelopes = []
    for block in blocks:
        inputs = propagate_block(inputs, block, variant=variant, d_model=d_model)
        envelopes.append(inputs)
    return envelopes


def _add(first: Envelope, second: Envelope) -> Envelope:
    return Envelope((Up(first.norm) + second.norm).value, (Up(first.error) + second.error).value)
