from collections.abc import Callable
from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from supermask_scores import densities, hard_scores, scores
from torch import Tensor, nn

from strongticket.ops import supermask
from strongticket.ops.supermask import Refresh, Supermask, cpu, reference, top_mask, top_masks


@settings(max_examples=300)
@given(s=scores(), density=densities, signed=st.booleans())
def test_cpu_equals_reference(s: Tensor, density: float, signed: bool) -> None:
    assert torch.equal(top_mask(s, density, signed=signed), reference.top_mask(s, density, signed=signed))


@pytest.mark.parametrize("signed", [False, True])
def test_every_cut_through_zeros_denormals_infinities_and_nans(signed: bool) -> None:
    s = hard_scores()
    for kept in range(1, len(s) + 1):
        density = kept / len(s)
        assert torch.equal(top_mask(s, density, signed=signed), reference.top_mask(s, density, signed=signed)), kept


@given(tensors=st.lists(scores(60), min_size=1, max_size=4), density=densities, signed=st.booleans())
def test_global_ranking_equals_reference(tensors: list[Tensor], density: float, signed: bool) -> None:
    expected = reference.top_masks(tensors, density, signed=signed)
    for actual, mask in zip(top_masks(tensors, density, signed=signed), expected, strict=True):
        assert torch.equal(actual, mask)


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("distinct", [1, 5, 2**31])
def test_threads_and_pieces_change_nothing(threads: int, distinct: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "_CHUNK", 1000)
    s = torch.from_numpy(np.random.default_rng(0).integers(0, distinct, 12_345, dtype=np.int32)).float()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(top_mask(s, 0.3), reference.top_mask(s, 0.3))
    finally:
        torch.set_num_threads(before)


def test_the_published_rule_by_hand() -> None:
    s = torch.tensor([[2.0, -3.0, 1.0], [-2.0, 2.0, 0.0]])
    # int(0.5 * 6) = 3 are dropped: 0, 1 and the first of three twos.
    assert top_mask(s, 0.5).tolist() == [[False, True, False], [True, True, False]]
    assert top_mask(s, 0.5, signed=True).tolist() == [[True, False, True], [False, True, False]]


@given(n=st.integers(0, 400), density=densities, seed=st.integers(0, 99))
def test_the_count_is_exact_though_all_scores_tie(n: int, density: float, seed: int) -> None:
    mask = top_mask(torch.full((n,), float(seed)), density)
    dropped = int((1 - density) * n)
    assert mask.tolist() == [False] * dropped + [True] * (n - dropped)


def test_strided_and_narrow_scores() -> None:
    s = torch.randn(40, 30, generator=torch.Generator().manual_seed(0))
    for view in (s.T, s[::2, 1::3], s.bfloat16(), s.half()):
        assert torch.equal(top_mask(view, 0.3), reference.top_mask(view, 0.3))


def test_bad_input() -> None:
    with pytest.raises(ValueError, match=r"density must be in \(0, 1\]; got 70"):
        top_mask(torch.ones(3), 70)
    with pytest.raises(ValueError, match="scores must be float32"):
        top_mask(torch.ones(3, dtype=torch.float64), 0.5)
    with pytest.raises(ValueError, match="one device, cpu or cuda; got meta"):
        top_mask(torch.ones(3, device="meta"), 0.5)
    with pytest.raises(ValueError, match="one density"):
        Refresh([Supermask(torch.ones(3), 0.5), Supermask(torch.ones(3), 0.3)], "global")
    with pytest.raises(ValueError, match="scope must be"):
        Refresh([], "layer")  # type: ignore[arg-type]


def test_more_scores_than_a_count_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.iinfo(torch.uint32).max == supermask.MAX_SCORES
    monkeypatch.setattr(supermask, "MAX_SCORES", 5)
    with pytest.raises(ValueError, match="at most 5 scores"):
        top_masks([torch.ones(3), torch.ones(3)], 0.5)


# --- Refresh ---------------------------------------------------------------------------------------------------------


def random_supermasks(signed: bool = False) -> list[Supermask]:
    torch.manual_seed(0)
    return [Supermask(torch.randn(n, 7).mul(4).round(), 0.3, signed=signed) for n in (1, 20, 0, 9)]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("scope", ["tensor", "global"])
def test_refresh_follows_the_scores(scope: supermask.Scope, signed: bool) -> None:
    masks = random_supermasks(signed)
    refresh = Refresh(masks, scope)
    for _ in range(3):
        expected = (
            reference.top_masks([m.scores for m in masks], 0.3, signed=signed)
            if scope == "global"
            else [reference.top_mask(m.scores, 0.3, signed=signed) for m in masks]
        )
        assert all(torch.equal(m.mask, e) for m, e in zip(masks, expected, strict=True))
        with torch.no_grad():
            for m in masks:
                m.scores.add_(torch.randn_like(m.scores).round())
        refresh()


@pytest.mark.parametrize("signed", [False, True])
def test_refresh_follows_scores_that_creep_jump_or_are_equal(signed: bool) -> None:
    torch.manual_seed(0)
    numbers = torch.randn(5000)
    mask = Supermask(numbers, 0.3, signed=signed)
    refresh = Refresh([mask])
    for later in (
        *(numbers + 1e-3 * i for i in range(4)),
        100 * numbers,
        torch.ones(5000),
        torch.zeros(5000),
        numbers.where(numbers > 0, torch.nan),
        -numbers,
    ):
        mask.scores.data.copy_(later)
        refresh()
        assert torch.equal(mask.mask, reference.top_mask(mask.scores, 0.3, signed=signed))


def test_a_mask_changes_only_when_refreshed() -> None:
    mask = random_supermasks()[1]
    refresh, before = Refresh([mask]), mask.mask.clone()
    with torch.no_grad():
        mask.scores.neg_().add_(7)
    assert torch.equal(mask.mask, before)
    refresh()
    assert not torch.equal(mask.mask, before)


def test_scores_are_a_copy() -> None:
    first = torch.rand(5)
    made, kept = supermask.Supermask(first, 0.4), first.clone()
    first.zero_()
    assert made.scores.equal(kept)


def test_refresh_refuses_densities_that_were_set_since() -> None:
    masks = random_supermasks()
    refresh = Refresh(masks, "global")
    masks[0].density = 0.5
    with pytest.raises(ValueError, match="scope='global', one density"):
        refresh()
    for m in masks:
        m.density = 1.5
    with pytest.raises(ValueError, match=r"density must be in .*got 1\.5"):
        refresh()


def test_refresh_notices_that_tensors_were_replaced() -> None:
    masks = random_supermasks()
    refresh = Refresh(masks)
    for m in masks:
        m.scores = torch.nn.Parameter(torch.randn_like(m.scores))
        m.mask = torch.zeros_like(m.mask)
    refresh()
    assert all(torch.equal(m.mask, reference.top_mask(m.scores, 0.3)) for m in masks)


CASTS: dict[str, Callable[[nn.Module], object]] = {
    "float64": lambda module: module.double(),
    "float16": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    # A second cast may be given the memory that the first one left.
    "float16 again": lambda module: module.double().half(),
    "not contiguous": lambda module: module.to(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("scope", ["tensor", "global"])
@pytest.mark.parametrize("cast", CASTS)
def test_scores_that_were_cast_are_refused(cast: str, scope: supermask.Scope) -> None:
    masks = [Supermask(torch.randn(4, 3, 3, 3), 0.3) for _ in range(2)]
    refresh, module = Refresh(masks, scope), nn.ModuleList(masks)
    CASTS[cast](module)
    message = rf"scores must stay contiguous float32.* got {cast.split(' again')[0]} .*torch\.autocast"
    for _ in range(2):
        with pytest.raises(ValueError, match=message):
            refresh()
    module.float().to(memory_format=torch.contiguous_format)
    refresh()
    groups = [masks] if scope == "global" else [[m] for m in masks]
    expected = [mask for group in groups for mask in reference.top_masks([m.scores for m in group], 0.3)]
    assert all(torch.equal(m.mask, e) for m, e in zip(masks, expected, strict=True))


@pytest.mark.parametrize("mask", [torch.ones(5).bool(), torch.ones(6), torch.ones(12).bool()[::2]])
def test_a_mask_that_cannot_hold_the_ranking_is_refused(mask: Tensor) -> None:
    supermask = Supermask(torch.ones(6), 0.5)
    refresh = Refresh([supermask])
    supermask.mask = mask
    with pytest.raises(ValueError, match="masks contiguous bool of their shape"):
        refresh()


def test_nothing_to_rank_is_no_error() -> None:
    assert top_masks([], 0.5) == []
    for scope in get_args(supermask.Scope):
        Refresh([], scope)()


def test_each_tensor_may_have_its_own_density() -> None:
    masks = [Supermask(torch.randn(100), density) for density in (0.1, 0.5, 1.0)]
    Refresh(masks)()
    assert [int(m.mask.sum()) for m in masks] == [10, 50, 100]


@pytest.mark.parametrize("shrink", [0.3, 0.9, 1.0])
@pytest.mark.parametrize("scope", get_args(supermask.Scope))
@pytest.mark.parametrize("chunk", [1000, 1 << 18])
def test_levels_count_the_coats_that_keep_a_weight(
    chunk: int, scope: supermask.Scope, shrink: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_CHUNK", chunk)
    torch.manual_seed(0)
    masks = [Supermask(torch.randn(size), 0.6) for size in (5000, 300, 70, 0)]
    for m in masks:
        m.register_buffer("levels", torch.zeros(len(m.scores), dtype=torch.uint8))
    shares = [shrink**coat for coat in range(4)]
    refresh = Refresh(masks, scope, coats=shares)
    for step in range(6):
        for m in masks:  # creep, jump, or become equal
            m.scores.data = (
                m.scores.data * (1 + 0.01 * torch.rand(len(m.scores))) if step != 3 else m.scores.data.round()
            )
        refresh()
        scores = [m.scores.detach() for m in masks]
        groups = [scores] if scope == "global" else [[s] for s in scores]
        coats = [[mask for g in groups for mask in reference.top_masks(g, 0.6 * share)] for share in shares]
        for m, *kept in zip(masks, *coats, strict=True):
            assert torch.equal(m.levels, torch.stack(kept).sum(dim=0).byte()), step
            assert torch.equal(m.mask, kept[-1])


def test_coats_that_are_ranked_in_turn_add_up() -> None:
    """As on a GPU, whose kernels make one coat at a time."""
    mask, level = torch.zeros(4, dtype=torch.bool), torch.full((4,), 9, dtype=torch.uint8)
    coats = [lambda dropped: mask.copy_(torch.arange(4) >= dropped[0])] * 3
    refresh = supermask._in_turn(coats, [[mask]], [[level]])
    for dropped, levels in (((1, 2, 3), [0, 1, 2, 3]), ((0, 0, 4), [2, 2, 2, 2])):
        refresh([dropped])
        assert level.tolist() == levels
        assert mask.tolist() == [k >= dropped[-1] for k in range(4)]


def test_coats_of_scores_that_creep_are_ranked_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair of keys around each threshold settles all coats, unless the pairs overlap or a threshold leaves its."""
    size = 240
    generator = torch.Generator().manual_seed(0)
    mask = Supermask(torch.rand(size, generator=generator) - 0.5, 0.3)
    mask.register_buffer("levels", torch.zeros(size, dtype=torch.uint8))
    refresh, again, slowly = Refresh([mask], coats=[1.0, 0.32, 0.1]), [], cpu._refresh
    monkeypatch.setattr(cpu, "_refresh", lambda *given: again.append(given) or slowly(*given))
    for _ in range(100):
        mask.scores.data += 1e-4 * torch.randn(size, generator=generator)
        refresh()
    assert len(again) <= 30, "a tenth of 100 refreshes of three coats"


def test_state_brings_the_mask_back() -> None:
    saved, fresh = random_supermasks()[1], Supermask(torch.zeros(20, 7), 0.3)
    fresh.load_state_dict(saved.state_dict())
    assert torch.equal(fresh.mask, saved.mask)
    assert torch.equal(fresh.scores, saved.scores)


def test_what_was_checked_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refresh, checks = Refresh(random_supermasks()), []
    monkeypatch.setattr(Refresh, "_check", lambda self: checks.append(self))
    refresh()
    refresh()
    assert len(checks) <= 1


def test_few_weights_are_multiplied_by_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_kernels", lambda device: pytest.fail("a kernel was called for 3 weights"))
    kept = supermask.scored_weight(torch.ones(3), torch.ones(3), torch.tensor([True, False, True]), "score")
    assert kept.tolist() == [1.0, 0.0, 1.0]
