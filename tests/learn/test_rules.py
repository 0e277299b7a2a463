"""What every rule can count on, tried with three: edge-popup, one that draws weights again, one that flips them."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from rule_iterand import IteRand
from rule_signed import SignedSupermask
from search_models import nano
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

import strongticket as st
from strongticket.cli.main import app
from strongticket.data.text import load_text
from strongticket.learn.config import RunConfig
from strongticket.learn.hidden import UnwritableError
from strongticket.learn.rules import RULES
from strongticket.learn.rules.edge_popup import EdgePopup
from strongticket.learn.rules.rule import Rule, Table
from strongticket.learn.run import Means
from strongticket.learn.shared import Share
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.learn.text_run import run
from strongticket.ops.rng import Distribution

RULES_TRIED: dict[str, Callable[[], Rule]] = {
    "edge-popup": EdgePopup,
    "iterand": lambda: IteRand(every=4, rate=0.5),
    "signed": SignedSupermask,
}
ANY_RULE = pytest.mark.parametrize("make_rule", RULES_TRIED.values(), ids=RULES_TRIED)
POINTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
LABELS = (POINTS[:, 0] > POINTS[:, 1]).long()


def make() -> nn.Module:
    """With running means, dropout and, below, a shuffled order: all that a resumed search could get wrong."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))


def classify(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def search(rule: Rule | str, **more: Any) -> st.Hidden:
    model = make()
    loader = DataLoader(TensorDataset(POINTS, LABELS), batch_size=8, shuffle=True)
    settings = {"steps": 15, "lr": 3e-2, "density": 0.5, "validation": [(POINTS, LABELS)], "validate_every": 4}
    return st.search(model, loader, loss=classify, rule=rule, **(settings | more))


def rebuilt(hidden: st.Hidden, tensor: HiddenTensor) -> Tensor:
    """The one meaning of what a rule finds: a coefficient and a draw for each weight's code."""
    codes, table = hidden.rule.codes(tensor)
    weights = torch.stack([coefficient * tensor.draw(draw) for coefficient, draw in table])
    return weights.gather(0, codes.long()[None])[0]


@ANY_RULE
def test_a_search_learns_and_its_codes_tell_its_weights(make_rule: Callable[[], Rule]) -> None:
    losses: list[float] = []
    hidden = search(make_rule(), steps=40, progress=lambda _, loss: losses.append(loss))
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    for tensor in hidden.tensors:
        if tensor.treatment == "masked":
            (weight,) = tensor.values(hidden.model)
            assert torch.equal(weight, rebuilt(hidden, tensor)), tensor.name
            assert 0 < hidden.densities()[tensor.tensor.group] < 1
    assert hidden.nonzero()["all"] == hidden.counts()["mlp"] + hidden.counts()["head"] + 32  # the norm's scales


@ANY_RULE
def test_a_search_that_was_stopped_ends_as_an_unbroken_one(make_rule: Callable[[], Rule], tmp_path: Path) -> None:
    whole = search(make_rule())

    def fail(step: int, loss: float) -> None:
        if step == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(make_rule(), out=tmp_path, checkpoint_seconds=0, progress=fail)
    assert not (tmp_path / "result.json").exists()
    seen: list[int] = []
    again = search(make_rule(), out=tmp_path, progress=lambda step, _: seen.append(step))
    assert seen[0] in (9, 11), "goes on after the last checkpoint"
    finished = search(make_rule(), out=tmp_path, progress=lambda step, _: seen.append(step))
    assert seen[-1] == 15, "a finished search is not done again"
    for other in (again, finished):
        assert other.best is not None
        assert whole.best is not None
        assert other.best.step == whole.best.step
        for moment in ("best", "final"):
            other.restore(getattr(other, moment))
            whole.restore(getattr(whole, moment))
            for name, value in whole.model.state_dict().items():
                assert torch.equal(value, other.model.state_dict()[name]), (moment, name)


@ANY_RULE
def test_a_ticket_brings_back_what_was_evaluated(make_rule: Callable[[], Rule], tmp_path: Path) -> None:
    hidden = search(make_rule(), out=tmp_path)
    ticket = st.Ticket.load(tmp_path / "best.ticket")
    assert ticket == hidden.to_ticket(ticket.metadata)
    assert ticket.verify().ok
    with torch.no_grad():
        expected = hidden.model.eval()(POINTS)
        assert torch.equal(st.load_ticket(make(), ticket).eval()(POINTS), expected)


class Many(SignedSupermask):
    """More codes than a ticket has room for."""

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        return super().codes(tensor)[0], tuple((float(level), 0) for level in range(17))


def test_what_a_ticket_has_no_place_for_is_said(tmp_path: Path) -> None:
    hidden = search(Many(), out=tmp_path)
    told = "the rule signed.* found for 0.weight what no ticket holds: a table has 1 to 16 codes; got 17"
    with pytest.raises(UnwritableError, match=told):
        hidden.to_ticket()
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["found"]["ticket"] is None
    assert hidden.rule.name in result["found"]["unwritable"]


def test_iterand_draws_dropped_weights_again_and_keeps_the_others() -> None:
    hidden = st.hide(make(), st.Policy(density=0.5), seed=1, rule=IteRand(every=1, rate=1.0))
    (tensor,) = (t for t in hidden.tensors if t.name == "0.weight")
    first, mask = tensor.weight.clone(), tensor.module.get_buffer("mask").clone()
    hidden.after_step()
    assert torch.equal(tensor.weight, torch.where(mask, first, tensor.draw(1)))
    assert not torch.equal(tensor.draw(1), first)


class Penalized(SignedSupermask):
    """Constant draws, and scores that are pulled to 0."""

    def source(self, tensor: ModelTensor, policy: st.Policy) -> tuple[Distribution, float]:
        return "sign", 0.5

    def before_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        for tensor in tensors:
            scores = tensor.module.get_parameter("scores")
            assert scores.grad is not None
            scores.grad += 100 * scores.detach()


def test_a_rule_may_draw_its_own_weights_and_add_a_penalty() -> None:
    penalized, plain = (search(rule, validation=None) for rule in (Penalized(), SignedSupermask()))
    drawn = [(row["distribution"], row["scale"]) for row in penalized.describe() if row["treatment"] == "masked"]
    assert drawn == [("sign", 0.5)] * 2
    sizes = [hidden.supermasks["0.weight"].scores.abs().mean().item() for hidden in (penalized, plain)]
    assert sizes[0] < 0.5 * sizes[1]


@ANY_RULE
def test_compiled(make_rule: Callable[[], Rule]) -> None:
    hidden = st.hide(make().eval(), st.Policy(), seed=3, rule=make_rule())
    results = []
    for model in (hidden.model, torch.compile(hidden.model, backend="aot_eager", fullgraph=True)):
        model(POINTS).square().sum().backward()
        results.append([p.grad for _, p in hidden.trainable()])
        hidden.model.zero_grad()
    torch.testing.assert_close(results[1], results[0])


def test_a_registered_rule_runs_on_text_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "signed-supermask", "rule_signed:SignedSupermask")
    config = RunConfig(
        size="nano",
        length=128,
        sequences=8,
        steps=2,
        warmup=0,
        micro_batch=8,
        policy=st.Policy(rule="signed-supermask"),
    )
    result = run(config, load_text("sample"), tmp_path, Means(share=Share(0, 1, torch.device("cpu"))))
    assert st.Ticket.load(tmp_path / result["found"]["ticket"]).build()
    assert json.loads((tmp_path / "config.json").read_text())["policy"]["rule"] == "signed-supermask"


def test_an_unknown_rule_gets_the_list() -> None:
    for call in (lambda: search("magic"), lambda: st.Policy(rule="magic")):
        with pytest.raises(ValueError, match=r"rule must be one of edge-popup.*; got 'magic'"):
            call()
    told = CliRunner().invoke(app, ["search", "--rule", "magic"])
    assert told.exit_code == 2
    assert "rule must be one of edge-popup" in told.output


# --- Rules that go wrong ---------------------------------------------------------------------------------------------


class Wrong(nn.Module):
    def __init__(self, turn: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.scores, self.turn = nn.Parameter(torch.ones(1)), turn

    def forward(self, weight: Tensor) -> Tensor:
        return self.turn(weight * self.scores)


class WrongRule(Rule):
    name = "wrong"

    def __init__(self, turn: Callable[[Tensor], Tensor]) -> None:
        self.turn = turn

    def begin(self, tensors: Sequence[HiddenTensor], policy: st.Policy) -> None:
        for tensor in tensors:
            tensor.module = Wrong(self.turn)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        return torch.ones(tensor.shape, dtype=torch.uint8), ((0.0, 0), (1.0, 0))


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (lambda w: w[:1], r"the rule wrong turns 0\.weight, torch.float32 \(32, 6\), into torch.float32 \(1, 6\)"),
        (lambda w: w.double(), r"the rule wrong turns 0\.weight, .* into torch.float64"),
        (lambda w: w / 0, r"192 weights that the rule wrong makes of 0\.weight are not finite"),
    ],
)
def test_weights_of_another_shape_or_no_numbers(turn: Callable[[Tensor], Tensor], told: str) -> None:
    with pytest.raises((ValueError, st.StrongTicketError), match=told):
        st.hide(make(), st.Policy(), seed=0, rule=WrongRule(turn))


def test_weights_that_become_no_numbers_are_named_and_not_only_the_loss() -> None:
    rule = WrongRule(lambda w: w * (1 if not torch.is_grad_enabled() else torch.nan))
    with pytest.raises(
        st.StrongTicketError, match=r"192 weights that the rule wrong makes of 0\.weight are not finite"
    ):
        search(rule, validation=None)


def test_codes_that_do_not_tell_the_weights_are_refused() -> None:
    hidden = st.hide(make(), st.Policy(), seed=0, rule=WrongRule(lambda w: 2 * w))
    with pytest.raises(st.StrongTicketError, match=r"0\.weight, masked by the rule wrong, computes with other weights"):
        hidden.to_ticket()


# --- Tickets that would not rebuild ----------------------------------------------------------------------------------


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def overwrite(model: Any) -> None:
    model[0].parametrizations.weight.original.data.mul_(1.5)


def parametrize_again(model: Any) -> None:
    parametrize.register_parametrization(model[4], "weight", Doubled())


def cast(model: Any) -> None:
    model.to(torch.bfloat16)


def change_norm(model: Any) -> None:
    model[1].weight.data.fill_(2.0)


def replace_layer(model: Any) -> None:
    model[0] = nn.Linear(6, 32)


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (overwrite, r"0\.weight, masked by the rule edge-popup,"),
        (parametrize_again, r"4\.weight, masked by the rule edge-popup,"),
        (cast, r"0\.weight, masked by the rule edge-popup,"),
        (change_norm, r"1\.weight, frozen,"),
        (replace_layer, r"0\.weight, masked by the rule edge-popup,"),
    ],
)
def test_a_ticket_that_would_not_rebuild_is_refused(spoil: Callable[[Any], None], name: str) -> None:
    hidden = st.hide(make(), st.Policy(), seed=0)
    assert hidden.to_ticket().strong
    spoil(hidden.model)
    with pytest.raises(st.StrongTicketError, match=rf"^{name} computes with other weights than its ticket would bring"):
        hidden.to_ticket()


def test_a_frozen_weight_that_was_overwritten_is_refused() -> None:
    hidden = st.hide(nano(), st.Policy(embeddings="frozen"), seed=0)
    hidden.model.get_parameter("tokens.weight").data[0, 0] += 1
    with pytest.raises(st.StrongTicketError, match=r"^tokens\.weight, frozen, computes with other weights"):
        hidden.to_ticket()


def test_a_density_that_is_set_counts_after_the_next_step() -> None:
    hidden = st.hide(make(), st.Policy(density=0.5), seed=0)
    for supermask in hidden.supermasks.values():
        supermask.density = 0.25
    assert hidden.densities() == {"mlp": 0.5, "head": 0.5}
    hidden.after_step()
    assert hidden.densities() == {"mlp": 0.25, "head": 0.25}
    assert hidden.to_ticket().density == 0.25
    hidden.supermasks["0.weight"].density = 7
    with pytest.raises(ValueError, match="density must be in"):
        hidden.after_step()
