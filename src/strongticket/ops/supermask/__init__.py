r"""From scores to masks to masked weights, with the straight-through gradient of edge-popup.

`reference.py` defines it, `cpu.py` and `cuda.py` make it fast. A training loop holds one `Supermask` per tensor and
calls one `Refresh` after each optimizer step; forward passes only multiply.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from strongticket.checks import Scope as Scope
from strongticket.checks import check_density
from strongticket.ops.rng import random_weights, stream_of
from strongticket.ops.supermask.reference import Soft as Soft
from strongticket.ops.supermask.reference import as_bytes, through_soft
from strongticket.ops.supermask.reference import dropped_count as dropped_count

MAX_SCORES = 2**32 - 1  # ranked together; counts are 32 bits wide on the GPU
_PLAIN = (torch.float32, torch.bool, torch.uint8)
_LITTLE = 2**14  # weights that torch multiplies faster than our kernel can be called


def top_mask(scores: Tensor, density: float, *, signed: bool = False) -> Tensor:
    r"""Keep the top `density` fraction of $|s|$, exactly: $\lfloor (1 - \text{density})\, n \rfloor$ are dropped.

    Among equal scores the later index is kept. NaN ranks above every number, so that its weight is kept and the loss
    shows it.

    Args:
        scores: $s$, any shape; float32 (bfloat16 and float16 are widened).
        density: fraction kept, in (0, 1].
        signed: rank by $s$, not by $|s|$.

    Example:
        >>> top_mask(torch.tensor([0.3, -0.9, 0.1, 0.3]), 0.5).tolist()
        [False, True, False, True]
    """
    return top_masks([scores], density, signed=signed)[0]


def top_masks(scores: Sequence[Tensor], density: float, *, signed: bool = False) -> list[Tensor]:
    """Keep the top `density` fraction of several tensors' scores, ranked together in the given order.

    Example:
        >>> [mask.tolist() for mask in top_masks([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])], 0.5)]
        [[False, False], [True, True]]
    """
    check_density(density)
    plain = [_float32(s) for s in scores]
    masks = [torch.empty_like(s, dtype=torch.bool) for s in plain]
    _selection([plain], [masks], signed)([density])
    return masks


def scored_weight(
    weight: Tensor,
    scores: Tensor,
    factors: Tensor | None,
    soft: Soft,
    *,
    scale: Tensor | None = None,
    source: Tensor | None = None,
    sigmoids: Tensor | None = None,
    sharpness: Tensor | None = None,
    places: Tensor | None = None,
    signs: bool = False,
) -> Tensor:
    r"""Multiply a weight by factors; the scores get the gradient of $v \odot f(s)$ instead.

    The scores of dropped weights get it, too, so that these can come back. The same as
    `weight * straight_through(soft(scores), factors)`, but on a CPU in one pass over the numbers each way.

    Args:
        weight: without a gradient.
        scores: $s$, shaped like the weight unless there are `places`.
        factors: bool or uint8, shaped like the weight; None for the sigmoids themselves.
        soft: $f$; `magnitude` is $|s|$, and `sigmoid` needs `sigmoids`.
        scale: multiply the weight by this scalar first.
        source: $v$, if it is not the weight.
        sigmoids: from `set_sigmoids`, with the current scores.
        sharpness: the scalar that they were computed with, if any.
        places: where in the flat weight the scores belong, if only some weights have one.
        signs: multiply the weight by the signs of the scores, too.
    """
    assert (soft == "sigmoid") == (sigmoids is not None)
    if signs and factors is not None and _cpu_kernels(weight, factors, scores) is None:
        # Torch 2.11 gives the scores no gradient if a compiled function computes its value from them, too.
        factors, signs = (scores.detach().sign() * factors).to(weight.dtype), False
    given = weight, scores, factors, soft, scale, source, sigmoids, sharpness, places, signs
    product: Tensor = _ScoredWeight.apply(*given)  # type: ignore[no-untyped-call]
    return product


def set_sigmoids(sigmoids: Tensor, scores: Tensor, sharpness: Tensor | None = None) -> Tensor:
    """Set numbers to the sigmoids of scores, or of the scores times a scalar; return them."""
    inner = scores.detach() if sharpness is None else torch.mul(sharpness, scores.detach(), out=sigmoids)
    return torch.sigmoid(inner, out=sigmoids)


def at_least_half(scores: Tensor) -> Tensor:
    """Return which scores round to 1."""
    if kernels := _cpu_kernels(scores):
        kept = torch.empty_like(scores, dtype=torch.bool)
        kernels.at_least_half(scores.data_ptr(), kept.data_ptr(), scores.numel())
        return kept
    return scores.detach() >= 0.5


def clamp_kept(scores: Tensor, mask: Tensor) -> None:
    """Clamp scores to [0, 1] where a mask keeps them, and set the others to -1; in place."""
    if kernels := _cpu_kernels(scores, mask):
        kernels.clamp_kept(scores.data_ptr(), mask.data_ptr(), scores.numel())
    else:
        scores.clamp_(0, 1).mul_(as_bytes(mask)).add_(as_bytes(mask).float().sub_(1))


def pull_kept(gradient: Tensor, scores: Tensor, mask: Tensor, l2: float) -> None:
    """Add the gradient of an L2 penalty where a mask keeps scores, and set that of the others to 0; in place."""
    if kernels := _cpu_kernels(gradient, scores, mask):
        kernels.pull_kept(gradient.data_ptr(), scores.data_ptr(), mask.data_ptr(), l2, scores.numel())
    else:
        gradient.add_(scores.detach(), alpha=l2).mul_(as_bytes(mask))


def add_slopes(gradient: Tensor, sigmoids: Tensor, factor: Tensor) -> None:
    """Add the slopes of sigmoids, p (1 - p), times a scalar; in place."""
    if kernels := _cpu_kernels(gradient, sigmoids):
        kernels.add_slopes(gradient.data_ptr(), sigmoids.data_ptr(), float(factor), sigmoids.numel())
    else:
        gradient += (1 - sigmoids).mul_(sigmoids * factor)


def draw_mask(mask: Tensor, chances: Tensor, seed: int, name: str) -> None:
    """Keep each weight by its chance $p$, in place: a uniform number in [-1, 1] is below $2 p - 1$ with chance $p$.

    The numbers are those of `random_weights(seed, name, mask.shape)`.
    """
    if kernels := _cpu_kernels(mask, chances, little=_LITTLE >> 8):  # torch would store the random numbers
        key = kernels.key_of(stream_of(seed, name))
        kernels.draw_mask(mask.data_ptr(), chances.data_ptr(), mask.numel(), key)
    else:
        mask.copy_(random_weights(seed, name, tuple(mask.shape), device=mask.device) < 2 * chances - 1)


def mean_magnitude(weight: Tensor, mask: Tensor) -> Tensor | float:
    """Return the mean magnitude of kept weights, 0 if there are none; in float64, so that their order does not matter.

    Example:
        >>> float(mean_magnitude(torch.tensor([1.0, 2.0, -6.0]), torch.tensor([True, False, True])))
        3.5
    """
    if kernels := _cpu_kernels(weight, mask, little=_LITTLE >> 8):  # torch needs six operations
        return float(kernels.mean_magnitude(weight.data_ptr(), mask.data_ptr(), weight.numel()))
    return (weight.abs() * as_bytes(mask)).sum(dtype=torch.float64) / mask.sum().clamp(min=1)


class _ScoredWeight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, scores: Tensor, factors: Tensor | None, *rest: Any) -> Tensor:
        soft, scale, source, sigmoids, sharpness, places, signs = rest
        # Not in a `setup_context`, for which torch looks up the signature at each call: 50 us.
        ctx.soft = soft
        ctx.save_for_backward(weight if source is None else source, scores, sigmoids, sharpness, places)
        if factors is None:
            assert sigmoids is not None
            return torch.mul(weight, sigmoids)
        if signs:
            out, given = torch.empty_like(weight), (weight.data_ptr(), scores.data_ptr(), factors.data_ptr())
            _kernels("elementwise").signed_product(*given, out.data_ptr(), out.numel())
            return out
        if kernels := _cpu_kernels(weight, factors):
            out, number = torch.empty_like(weight), 1.0 if scale is None else float(scale)
            kernels.product(weight.data_ptr(), factors.data_ptr(), number, out.data_ptr(), out.numel())
            return out
        return torch.mul(weight if scale is None else scale * weight, factors)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        source, scores, sigmoids, sharpness, places = ctx.saved_tensors
        if kernels := _cpu_kernels(gradients[0], source, scores):
            sharp = 1.0 if sharpness is None else float(sharpness)
            gradient = kernels.score_gradient(gradients[0], source, scores, ctx.soft, sigmoids, sharp, places)
        else:
            gradient = (gradients[0] * source).to(scores.dtype)
            gradient = gradient if places is None else gradient.flatten()[places]
            gradient = through_soft(gradient, scores, ctx.soft, sigmoids)
            gradient = gradient if sharpness is None else gradient * sharpness
        return None, gradient, *[None] * 8


def _cpu_kernels(*tensors: Tensor, little: int | None = None) -> Any | None:
    """Return the kernels for float32 on a CPU; None where torch is as fast: few weights, GPUs, compilation."""
    if tensors[0].numel() < (_LITTLE if little is None else little) or torch.compiler.is_compiling():
        return None
    for t in tensors:  # a loop, since this is called for every weight in every step
        if not t.is_cpu or not t.is_contiguous() or t.dtype not in _PLAIN:
            return None
    return _kernels("elementwise")


@cache
def _kernels(module: str) -> Any:
    # Imported on first use: numba and the GPU tool chain are slow to load.
    return import_module(f"{__name__}.{module}")


class Supermask(nn.Module):
    """The scores and the mask of one tensor; as a parametrization it turns the weight into the masked weight.

    The mask is initially correct and changes only by a `Refresh`, which is needed after every optimizer step.

    Args:
        scores: initial values, shaped like the weight; copied, in float32.
        density: fraction kept, in (0, 1].
        signed: rank by the score, not by its absolute value.

    Example:
        >>> layer = nn.Linear(3, 2).requires_grad_(False)
        >>> supermask = Supermask(torch.rand(2, 3), density=0.5)
        >>> _ = nn.utils.parametrize.register_parametrization(layer, "weight", supermask)
        >>> int((layer.weight != 0).sum()), [name for name, p in layer.named_parameters() if p.requires_grad]
        (3, ['parametrizations.weight.0.scores'])
    """

    mask: Tensor
    levels: Tensor  # with coats only, see `Refresh`

    def __init__(self, scores: Tensor, density: float, *, signed: bool = False) -> None:
        super().__init__()
        self.density, self.signed = density, signed
        self.scores = nn.Parameter(_float32(scores).clone())
        self.register_buffer("mask", top_mask(self.scores, density, signed=signed))

    @property
    def soft(self) -> Soft:
        """What is ranked, for `scored_weight`."""
        return "score" if self.signed else "magnitude"

    def forward(self, weight: Tensor) -> Tensor:
        """Return the masked weight."""
        return scored_weight(weight, self.scores, self.mask, self.soft)


class Refresh:
    """Update the masks of many tensors, in place and together: call it after each optimizer step.

    On a GPU it queues a few kernels, for any number of tensors, and never waits for them, even if a density has
    changed.

    Args:
        supermasks: on one device.
        scope: rank each tensor's scores separately, or all together in the given order.
        coats: shares of the density, one mask each; the last stays. The `levels` of a supermask count those that keep a
            weight.
    """

    def __init__(
        self, supermasks: Sequence[Supermask], scope: Scope = "tensor", *, coats: Sequence[float] | None = None
    ) -> None:
        if scope not in ("tensor", "global"):
            raise ValueError(f"scope must be tensor or global; got {scope!r}.")
        self.supermasks, self.scope, self._coats = tuple(supermasks), scope, coats
        self._checked: list[tuple[bool, float]] = []
        self._prepared_for: list[tuple[int, torch.dtype, bool]] = []
        self._refresh: Callable[[Sequence[float]], None] = lambda densities: None
        # Masks are first made per tensor; a global ranking must replace them before the first pass.
        self()

    @torch.no_grad()
    def __call__(self) -> None:
        """Refresh every mask."""
        counted = self._coats is not None
        tensors = [t for m in self.supermasks for t in (m.scores, m.mask, *([m.levels] if counted else []))]
        # The prepared kernels hold addresses, which change when a model moves or loads. A model cast twice may get an
        # old address back, so everything else the kernels rely on is compared too.
        places = [(tensor.data_ptr(), tensor.dtype, tensor.is_contiguous()) for tensor in tensors]
        if places != self._prepared_for:
            self._prepared_for, self._refresh = places, self._prepare()
        kinds = [(m.signed, m.density) for m in self.supermasks]
        if kinds != self._checked:
            self._check()
            self._checked = kinds
        densities = [density for _, density in kinds[: 1 if self.scope == "global" else None]]
        self._refresh(densities)

    def _check(self) -> None:
        """Refuse what cannot be ranked together; a density may have changed since the last call."""
        kinds = {(m.signed, m.density if self.scope == "global" else None) for m in self.supermasks}
        if len(kinds) > 1:
            raise ValueError("one refresh needs all scores signed or none and, with scope='global', one density.")
        for supermask in self.supermasks:
            check_density(supermask.density)

    def _prepare(self) -> Callable[[Sequence[float]], None]:
        if not self.supermasks:
            return lambda densities: None
        groups = [self.supermasks] if self.scope == "global" else [(m,) for m in self.supermasks]
        scores, masks = [[m.scores for m in group] for group in groups], [[m.mask for m in group] for group in groups]
        levels = None if self._coats is None else [[m.levels for m in group] for group in groups]
        return _selection(scores, masks, self.supermasks[0].signed, levels, self._coats or (1.0,))


def _selection(
    scores: Sequence[Sequence[Tensor]],
    masks: Sequence[Sequence[Tensor]],
    signed: bool,
    levels: Sequence[Sequence[Tensor]] | None = None,
    coats: Sequence[float] = (1.0,),
) -> Callable[[Sequence[float]], None]:
    """Prepare a function that ranks each group's scores and keeps a density of each, or shares of it."""
    devices = {tensor.device for group in (*scores, *masks) for tensor in group}
    if not devices:
        return lambda densities: None
    if len(devices) > 1 or next(iter(devices)).type not in ("cpu", "cuda"):
        raise ValueError(f"masks must be on one device, cpu or cuda; got {', '.join(sorted(map(str, devices)))}.")
    for group, group_masks in zip(scores, masks, strict=True):
        for s, mask in zip(group, group_masks, strict=True):
            _check_layout(s, mask)
    sizes = [sum(s.numel() for s in group) for group in scores]
    if max(sizes) > MAX_SCORES:
        raise ValueError(f"at most {MAX_SCORES} scores can be ranked together; got {max(sizes)}. Use scope='tensor'.")

    def dropped(densities: Sequence[float]) -> list[list[int]]:
        pairs = list(zip(sizes, densities, strict=True))
        return [[dropped_count(size, density * share) for share in coats] for size, density in pairs]

    kernels, cpu = _kernels(device := devices.pop().type), device == "cpu"
    prepare = partial(kernels.selection, scores, masks, signed)
    refresh = prepare(levels, len(coats)) if cpu else _in_turn([prepare() for _ in coats], masks, levels)
    return lambda densities: refresh(dropped(densities))


def _in_turn(
    refreshes: Sequence[Callable[[Sequence[int]], None]],
    masks: Sequence[Sequence[Tensor]],
    levels: Sequence[Sequence[Tensor]] | None,
) -> Callable[[Sequence[Sequence[int]]], None]:
    """Make one refresh of those of several coats, which adds up their masks."""
    pairs = [pair for groups in zip(levels or (), masks, strict=False) for pair in zip(*groups, strict=True)]

    def refresh_all(dropped: Sequence[Sequence[int]]) -> None:
        for coat, refresh in enumerate(refreshes):
            refresh([counts[coat] for counts in dropped])
            for level, mask in pairs:
                level.add_(as_bytes(mask)) if coat else level.copy_(as_bytes(mask))

    return refresh_all


def _check_layout(scores: Tensor, mask: Tensor) -> None:
    """Refuse tensors that a kernel, which sees only bits, would misread or write beyond."""
    plain = scores.is_contiguous() and mask.is_contiguous()
    if plain and scores.dtype == torch.float32 and mask.dtype == torch.bool and scores.shape == mask.shape:
        return
    raise ValueError(
        "scores must stay contiguous float32, and masks contiguous bool of their shape; got "
        f"{_layout(scores)} scores and a {_layout(mask)} mask. Cast a module before adding masks, not after; "
        "for lower precision use torch.autocast."
    )


def _layout(tensor: Tensor) -> str:
    strided = "" if tensor.is_contiguous() else "not contiguous "
    return f"{strided}{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _float32(scores: Tensor) -> Tensor:
    if scores.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise ValueError(f"scores must be float32; got {scores.dtype}. Convert them; this may create ties.")
    return scores.detach().to(torch.float32).contiguous()
