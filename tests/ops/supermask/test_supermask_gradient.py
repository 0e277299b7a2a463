from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from supermask_scores import scores
from tests.two_processes import in_two_processes
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.ops import supermask
from strongticket.ops.rng import random_weights
from strongticket.ops.supermask import Refresh, Supermask, reference, scored_weight

TOKENS = torch.randint(256, (4, 33), generator=torch.Generator().manual_seed(0))


def masked_gpt2(signed: bool = False, n_layers: int = 1) -> tuple[GPT2, list[Supermask]]:
    """A nano GPT-2 whose random tensors are masked and frozen; all else is frozen too."""
    model = GPT2(gpt2_config("nano", n_layers=n_layers, output_gain=4.0), seed=3).requires_grad_(False)
    supermasks, generator = [], torch.Generator().manual_seed(1)
    for name in initial_scales(model.config):
        layer = model.get_submodule(name.removesuffix(".weight"))
        supermasks.append(Supermask(torch.rand(layer.weight.shape, generator=generator) - 0.5, 0.3, signed=signed))
        parametrize.register_parametrization(layer, "weight", supermasks[-1])
    return model, supermasks


def loss_of(model: Callable[..., Tensor], tokens: Tensor) -> Tensor:
    return model(tokens[:, :-1], tokens[:, 1:])


def masked_weight(weight: Tensor, s: Tensor, mask: Tensor, *, signed: bool = False) -> Tensor:
    return scored_weight(weight, s, mask, "score" if signed else "magnitude")


def gradients(supermasks: list[Supermask]) -> list[Tensor]:
    found = [m.scores.grad for m in supermasks]
    for m in supermasks:
        m.scores.grad = None
    return [g for g in found if g is not None]


@given(s=scores(), seed=st.integers(0, 99), density=st.sampled_from([0.3, 1.0]), signed=st.booleans())
def test_value_and_gradient_equal_reference(s: Tensor, seed: int, density: float, signed: bool) -> None:
    torch.manual_seed(seed)
    weight, upstream = torch.randn_like(s), torch.randn_like(s)
    mask = reference.top_mask(s, density, signed=signed)
    results = []
    for function in (masked_weight, reference.masked_weight):
        leaf = s.clone().requires_grad_()
        out = function(weight, leaf, mask, signed=signed)
        out.backward(upstream)
        assert leaf.grad is not None
        results.append((out.detach(), leaf.grad))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


SOFT = {"score": lambda s: s, "magnitude": torch.abs, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


@pytest.mark.parametrize("little", [0, 2**62], ids=["kernels", "torch"])
@pytest.mark.parametrize("soft", SOFT)
@pytest.mark.parametrize("factors", [[True, False, True] * 5, [0, 3, 255] * 5], ids=["mask", "levels"])
def test_a_scored_weight_has_the_gradient_of_the_soft_one(
    factors: list[int], soft: supermask.Soft, little: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", little)
    torch.manual_seed(0)
    weight, source, upstream, leaf = torch.randn(4, 15)
    hard = torch.tensor(factors, dtype=torch.bool if factors[0] is True else torch.uint8)
    sigmoids = leaf.sigmoid() if soft == "sigmoid" else None
    out = supermask.scored_weight(weight, leaf.requires_grad_(), hard, soft, source=source, sigmoids=sigmoids)
    assert torch.equal(out, weight * hard)
    (actual,) = torch.autograd.grad(out, leaf, upstream)
    (expected,) = torch.autograd.grad(source * reference.straight_through(SOFT[soft](leaf), hard), leaf, upstream)
    if soft == "tanh" and little == 0:  # by another formula
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)
    else:
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("size", [0, 1, 7, 63, 1001])
def test_means_and_draws_are_those_of_torch(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(size)
    weight, chances = torch.randn(size), torch.rand(size)
    found = []
    for little in (0, 2**62):
        monkeypatch.setattr(supermask, "_LITTLE", little)
        mask = torch.empty(size, dtype=torch.bool)
        supermask.draw_mask(mask, chances, 0, "w")
        found.append((mask, torch.tensor(float(supermask.mean_magnitude(weight, mask)))))
    assert all(torch.equal(*pair) for pair in zip(*found, strict=True))


EXTREMES = torch.tensor([0.0, -0.0, 0.5, 1.0, 1.5, -1.5, 30.0, -30.0, 1e30, torch.inf, -torch.inf, torch.nan])


@pytest.mark.parametrize("size", [0, 1, 1030])
def test_scores_are_rounded_clamped_and_pulled_as_by_torch(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(size)
    numbers = torch.cat([torch.randn(size), EXTREMES])
    gradient, mask, sigmoids = torch.randn_like(numbers), torch.rand_like(numbers) < 0.7, numbers.sigmoid()
    found = []
    for little in (0, 2**62):
        monkeypatch.setattr(supermask, "_LITTLE", little)
        clamped, pulled, sloped = numbers.clone(), gradient.clone(), gradient.clone()
        supermask.clamp_kept(clamped, mask)
        supermask.pull_kept(pulled, numbers, mask, 0.3)
        supermask.add_slopes(sloped, sigmoids, torch.tensor(0.3))
        found.append((supermask.at_least_half(numbers), clamped, pulled, sloped))
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found[0][0], numbers >= 0.5)
    assert set(clamped[~mask].nan_to_num(-1).tolist()) <= {-1.0}
    assert ((clamped >= 0) & (clamped <= 1))[mask & ~numbers.isnan()].all()


def test_the_slope_of_tanh_is_exact_to_six_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", 0)
    scores = torch.cat([torch.linspace(-9, 9, 5000), EXTREMES]).requires_grad_()
    ones = torch.ones_like(scores)
    (slope,) = torch.autograd.grad(supermask.scored_weight(ones, scores, ones.bool(), "tanh"), scores, ones)
    expected = 1 / scores.detach().double().cosh().square()
    torch.testing.assert_close(slope.double(), expected, rtol=2e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("little", [0, 2**62], ids=["kernels", "torch"])
@pytest.mark.parametrize("soft", ["score", "magnitude"])
def test_scores_of_some_weights_only(soft: supermask.Soft, little: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", little)
    torch.manual_seed(0)
    weight, upstream = torch.randn(2, 4, 5)
    places, mask = torch.tensor([1, 2, 7, 19]), torch.rand(4, 5) < 0.5
    for free in (places, places[:0]):
        scores = torch.randn(len(free), requires_grad=True)
        out = supermask.scored_weight(weight, scores, mask, soft, places=free)
        assert torch.equal(out, weight * mask)
        (actual,) = torch.autograd.grad(out, scores, upstream)
        signs = scores.detach().sign() if soft == "magnitude" else 1
        assert torch.equal(actual, (upstream * weight).flatten()[free] * signs)


@pytest.mark.parametrize("little", [0, 2**62], ids=["kernels", "torch"])
def test_a_weight_is_scaled_before_it_is_multiplied(little: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", little)
    weight, levels = torch.randn(100, generator=torch.Generator().manual_seed(0)), torch.arange(100).byte()
    scale, scores = torch.tensor(0.3), torch.zeros(100, requires_grad=True)
    out = supermask.scored_weight(weight, scores, levels, "score", scale=scale, source=weight)
    assert torch.equal(out, scale * weight * levels)


@pytest.mark.parametrize("little", [0, 2**62], ids=["kernels", "torch"])
def test_soft_masks_multiply_and_have_their_own_gradient(little: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", little)
    torch.manual_seed(0)
    weight, scores, upstream = torch.randn(3, 100)
    sharpness = torch.tensor(7.0)
    p = supermask.set_sigmoids(torch.empty(100), scores.requires_grad_(), sharpness)
    out = supermask.scored_weight(weight, scores, None, "sigmoid", sigmoids=p, sharpness=sharpness)
    expected = weight * (sharpness * scores).sigmoid()
    assert torch.equal(out, expected)
    gradients = [torch.autograd.grad(value, scores, upstream)[0] for value in (out, expected)]
    assert torch.equal(*gradients)


@pytest.mark.parametrize("masked_weight", [masked_weight, reference.masked_weight])
def test_the_gradient_is_what_the_paper_of_edge_popup_says(masked_weight: Callable[..., Tensor]) -> None:
    weight, s = torch.tensor([2.0, 3.0, 5.0]), torch.tensor([-1.0, 0.5, 0.0], requires_grad=True)
    out = masked_weight(weight, s, torch.tensor([True, False, False]))
    assert out.tolist() == [2.0, 0.0, 0.0]
    (gradient,) = torch.autograd.grad(out, s, torch.tensor([10.0, 10.0, 10.0]))
    assert gradient.tolist() == [-20.0, 30.0, 0.0]  # a dropped weight has one too


@pytest.mark.parametrize("signed", [False, True])
def test_compiled_without_graph_breaks(signed: bool) -> None:
    model, supermasks = masked_gpt2(signed)
    loss = loss_of(model, TOKENS)
    loss.backward()
    expected = gradients(supermasks)
    assert len(expected) == len(supermasks) == 8
    compiled = loss_of(torch.compile(model, fullgraph=True, backend="aot_eager"), TOKENS)
    compiled.backward()
    torch.testing.assert_close(compiled, loss)
    for actual, gradient in zip(gradients(supermasks), expected, strict=True):
        torch.testing.assert_close(actual, gradient)


def test_autocast_gives_float32_gradients_near_the_exact_ones() -> None:
    model, supermasks = masked_gpt2()
    loss_of(model, TOKENS).backward()
    expected = gradients(supermasks)
    # oneDNN's bfloat16 products crash on virtual machines that list AMX and refuse it.
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model, TOKENS)
        loss.backward()
    for actual, gradient in zip(gradients(supermasks), expected, strict=True):
        assert actual.dtype == torch.float32
        assert (actual - gradient).norm() < 0.05 * gradient.norm()


def test_gradients_accumulate() -> None:
    model, supermasks = masked_gpt2()
    loss_of(model, TOKENS).backward()
    expected = gradients(supermasks)
    for half in TOKENS.chunk(2):
        (loss_of(model, half) / 2).backward()
    for actual, gradient in zip(gradients(supermasks), expected, strict=True):
        torch.testing.assert_close(actual, gradient, rtol=1e-4, atol=1e-7)


def test_a_search_learns_and_leaves_the_weights_alone() -> None:
    model, supermasks = masked_gpt2()
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    assert {name for name in frozen if name.endswith("original")} != set()
    losses = train(model, supermasks, steps=12)
    assert losses[-1] < losses[0] - 1
    for name, before in frozen.items():
        assert torch.equal(model.get_parameter(name), before), name
    for m in supermasks:
        assert torch.equal(m.mask, reference.top_mask(m.scores, 0.3))


def train(run: nn.Module, supermasks: list[Supermask], steps: int, rows: slice = slice(None)) -> list[float]:
    """AdamW on the scores, a refresh after each step."""
    optimizer, refresh = torch.optim.AdamW([m.scores for m in supermasks], lr=0.02), Refresh(supermasks)
    losses = []
    for _ in range(steps):
        loss = loss_of(run, TOKENS[rows])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        refresh()
        losses.append(loss.item())
    return losses


def _masks_of_one_of_two(rank: int) -> list[Tensor]:
    model, supermasks = masked_gpt2()
    # Masks follow from scores, which DDP keeps equal; sending them around would only cost time.
    parallel = DistributedDataParallel(model, broadcast_buffers=False)
    train(parallel, supermasks, steps=3, rows=slice(2 * rank, 2 * rank + 2))
    return [m.mask for m in supermasks]


def test_two_processes_find_the_masks_of_one() -> None:
    model, supermasks = masked_gpt2()
    before = [m.mask.clone() for m in supermasks]
    train(model, supermasks, steps=3)
    both = in_two_processes(_masks_of_one_of_two)
    for first, second, alone, initial in zip(*both, [m.mask for m in supermasks], before, strict=True):
        assert torch.equal(first, second)
        # Sums in another order round differently: a score at the threshold may fall on its other side.
        changed = (alone != initial).sum()
        assert changed > 0
        assert (first != alone).sum() <= 0.01 * changed


@pytest.mark.parametrize("size", [1, 7, 1023, 1024, 3000])
def test_a_drawn_mask_compares_the_numbers_of_its_stream(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chances = torch.rand(size, generator=torch.Generator().manual_seed(0))
    expected = random_weights(5, "w.sample-3", (size,)) < 2 * chances - 1
    for little in (0, 2**62):
        monkeypatch.setattr(supermask, "_LITTLE", little)
        mask = torch.empty(size, dtype=torch.bool)
        supermask.draw_mask(mask, chances, 5, "w.sample-3")
        assert torch.equal(mask, expected)


@pytest.mark.parametrize("little", [0, 2**62], ids=["kernels", "torch"])
def test_a_weight_takes_the_signs_of_its_scores(little: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supermask, "_LITTLE", little)
    s = torch.tensor([2.0, -2.0, 0.0, torch.nan, -3.0], requires_grad=True)
    out = supermask.scored_weight(torch.full((5,), 0.5), s, s.detach() != -3, "tanh", signs=True)
    assert out.tolist() == [0.5, -0.5, 0, 0, 0]  # torch's sign of NaN is 0
