"""How much is kept of each tensor, and after each step of a ramp."""

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import nn
from typer.testing import CliRunner

import strongticket as st
from strongticket.cli.main import app
from strongticket.learn.density import densities_of

pytestmark = pytest.mark.usefixtures("sample_is_short")
RANKING_RULES = ["edge-popup", "iterand", "biprop", "signed", "multicoated:levels=2,shrink=0.5", "partially-frozen"]


def make(*widths: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(*pair) for pair in pairwise(widths)), nn.Conv2d(3, 5, 3))


def kept(hidden: st.Hidden) -> dict[str, float]:
    masked = [tensor for tensor in hidden.tensors if tensor.treatment == "masked"]
    return {tensor.name: float((hidden.rule.codes(tensor)[0] > 0).float().mean()) for tensor in masked}


@given(
    shapes=some.lists(some.lists(some.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=6),
    density=some.floats(0.01, 1),
)
def test_erk_keeps_the_density_of_all_in_proportion_to_sizes(shapes: list[list[int]], density: float) -> None:
    tensors: Any = [SimpleNamespace(shape=tuple(s), numel=torch.Size(s).numel()) for s in shapes]
    densities = densities_of(tensors, st.Policy(densities="erk", density=density))
    total = sum(t.numel for t in tensors)
    assert sum(d * t.numel for d, t in zip(densities, tensors, strict=True)) == pytest.approx(density * total)
    factors = [d * t.numel / sum(t.shape) for d, t in zip(densities, tensors, strict=True)]
    for d, factor in zip(densities, factors, strict=True):
        assert 0 < d <= 1
        # One factor for all, but for tensors that are kept whole and would need a larger one.
        assert factor == pytest.approx(max(factors)) or d == 1


@pytest.mark.parametrize("rule", RANKING_RULES)
def test_each_tensor_keeps_its_own(rule: str) -> None:
    wishes = {"0.*": 0.5, "*.weight": 0.25}
    hidden = st.hide(make(40, 50, 60), st.Policy(densities=wishes), seed=0, rule=rule)
    # The share that a seed decides about is what it is only nearly.
    near = 0.05 if rule == "partially-frozen" else 0.005
    assert kept(hidden) == pytest.approx({"0.weight": 0.5, "1.weight": 0.25, "2.weight": 0.25}, abs=near)
    erk = st.hide(make(40, 50, 60), st.Policy(densities="erk", density=0.5), seed=0, rule=rule)
    shares = kept(erk)
    assert shares["2.weight"] == 1.0, "the small convolution is kept whole"
    assert shares["0.weight"] > shares["1.weight"]


def test_rescaled_weights_follow_the_density_of_their_tensor() -> None:
    plain, rescaled = (
        st.hide(make(8, 8, 8), st.Policy(densities={"0.*": 0.25, "1.*": 0.64}, rescale=rescale), seed=0).describe()
        for rescale in (False, True)
    )
    ratios = [b["scale"] / a["scale"] for a, b in zip(plain, rescaled, strict=True) if a["treatment"] == "masked"]
    assert ratios == pytest.approx([1 / 0.5, 1 / 0.8, 1 / 0.3**0.5])


def test_weights_are_drawn_with_the_factor_of_the_first_pattern() -> None:
    policies = st.Policy(), st.Policy(factors={"0.weight": 0.1, "0.*": 9.0, "2.*": 2.0})
    plain, scaled = (st.hide(make(8, 8, 8), policy, seed=0) for policy in policies)
    for name, factor in {"0.weight": 0.1, "1.weight": 1.0, "2.weight": 2.0}.items():
        before, after = (hidden.model.get_submodule(name[0]).weight for hidden in (plain, scaled))
        torch.testing.assert_close(after, factor * before)
    assert scaled.to_ticket().strong
    with pytest.raises(ValueError, match=r"factors: no random tensor matches '0\.bias'; the first is '0\.weight'"):
        st.hide(make(8, 8), st.Policy(factors={"0.bias": 2.0}), seed=0)


@pytest.mark.parametrize("rule", RANKING_RULES)
@pytest.mark.parametrize("scope", ["tensor", "global"])
def test_a_ramp_goes_in_a_line_and_is_resumed(rule: str, scope: Any) -> None:
    policy = st.Policy(density=0.2, density_steps=4, scope=scope)
    hidden = st.hide(make(40, 50, 60), policy, seed=0, rule=rule)
    seen, moments = [], []
    for _ in range(6):
        seen.append(sum(hidden.densities().values()))
        moments.append({name: value.clone() for name, value in hidden.state().items()})
        hidden.after_step()
    total = len(hidden.densities())
    near = 0.05 if rule == "partially-frozen" or scope == "global" else 0.01
    if scope == "tensor":
        # What a frozen part of a partially frozen source drops is dropped from the beginning.
        first = 1 - 0.7 * 0.8 if rule == "partially-frozen" else 1.0
        assert seen[0] / total == pytest.approx(first, abs=near)
        assert seen[4] / total == seen[5] / total == pytest.approx(0.2, abs=near)
    assert sorted(seen, reverse=True) == seen
    for step in (1, 5, 3):
        hidden.load_state(moments[step], step)
        assert sum(hidden.densities().values()) == seen[step]


def test_scores_of_gem_miner_stay_between_0_and_1() -> None:
    hidden = st.hide(make(40, 50, 60), st.Policy(density=0.5), seed=0, rule="gem-miner:every=3")
    scores = hidden.tensors[0].module.scores
    with torch.no_grad():
        scores.copy_(torch.linspace(-1, 3, scores.numel()).view_as(scores))
    hidden.after_step()
    assert (scores.min(), scores.max()) == (0, 1)


def test_gem_miner_freezes_along_a_ramp() -> None:
    policy = st.Policy(density=0.2, density_steps=8)
    hidden = st.hide(make(40, 50, 60), policy, seed=0, rule="gem-miner:every=2,l2=0")
    alive = []
    for _ in range(10):
        alive.append(round(float((hidden.tensors[0].module.scores >= 0).float().mean()), 2))
        hidden.after_step()
    assert alive == [1.0, 1.0, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4, 0.2, 0.2]


def test_on_the_command_line(tmp_path: Path) -> None:
    line = (
        "search --size nano --data sample --steps 2 --sequences 4 --length 32 --device cpu --density-steps 2 "
        f"--density-start 0.9 --densities *.mlp.*=0.5,tokens.weight=0.1 --factors positions.weight=0.1 --json "
        f"--out {tmp_path}"
    )
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.output
    policy = json.loads((tmp_path / "seed-0" / "config.json").read_text())["policy"]
    assert policy["densities"] == {"*.mlp.*": 0.5, "tokens.weight": 0.1}
    assert policy["factors"] == {"positions.weight": 0.1}
    refused = CliRunner().invoke(app, ["search", "--densities", "tokens.weight"])
    assert refused.exit_code == 2
    assert refused.output == (
        "Error: --densities must be uniform or erk, or NAME=X,... with a number for each; got 'tokens.weight'.\n"
    )
