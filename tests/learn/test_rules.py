"""What every rule can count on, and what can be counted on of every rule."""

import json
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rules_tried import RULES_TRIED
from search_models import nano
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.utils.data import DataLoader, TensorDataset
from typer.testing import CliRunner

import strongticket as st
import strongticket.learn.rules as rules_folder
from strongticket.cli.main import app
from strongticket.data.text import load_text
from strongticket.learn.config import RunConfig
from strongticket.learn.hidden import UnwritableError
from strongticket.learn.rules import RULES
from strongticket.learn.rules.iterand import IteRand
from strongticket.learn.rules.rule import Rule, Table, as_rule
from strongticket.learn.rules.signed import Signed
from strongticket.learn.run import Means
from strongticket.learn.shared import Share
from strongticket.learn.tensors import HiddenTensor, ModelTensor
from strongticket.learn.text_run import run
from strongticket.ops.rng import Distribution

pytestmark = pytest.mark.usefixtures("sample_is_short")
ANY_RULE = pytest.mark.parametrize("rule", RULES_TRIED)
POINTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
LABELS = (POINTS[:, 0] > POINTS[:, 1]).long()


def make(width: int = 32) -> nn.Module:
    """With running means, dropout and, below, a shuffled order: all that a resumed search could get wrong."""
    torch.manual_seed(0)
    layers = nn.Linear(6, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(width, 2)
    return nn.Sequential(*layers)


def classify(model: nn.Module, batch: Sequence[Tensor]) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def search(rule: Rule | str, width: int = 32, **more: Any) -> st.Hidden:
    model = make(width)
    loader = DataLoader(TensorDataset(POINTS, LABELS), batch_size=8, shuffle=True)
    settings = {"steps": 15, "lr": 3e-2, "density": 0.5, "validation": [(POINTS, LABELS)], "validate_every": 4}
    return st.search(model, loader, loss=classify, rule=rule, **(settings | more))


def rebuilt(hidden: st.Hidden, tensor: HiddenTensor) -> Tensor:
    """The one meaning of what a rule finds: a coefficient and a draw for each weight's code."""
    codes, table = hidden.rule.codes(tensor)
    weights = torch.stack([coefficient * tensor.draw(draw) for coefficient, draw in table])
    return weights.gather(0, codes.long()[None])[0]


@ANY_RULE
def test_a_search_learns_and_its_codes_tell_its_weights(rule: str) -> None:
    losses: list[float] = []
    lr = 1.0 if rule.startswith("bernoulli") else 0.03  # of probabilities
    hidden = search(rule, steps=60, lr=lr, width=256, watch=lambda moment: losses.append(moment.validation_loss))
    assert hidden.best is not None
    assert hidden.best.loss < 0.7 * losses[0]
    hidden.model.eval()
    for tensor in hidden.tensors:
        if tensor.treatment == "masked":
            (weight,) = tensor.values(hidden.model)
            assert torch.equal(weight, rebuilt(hidden, tensor)), tensor.name
            assert 0 < hidden.densities()[tensor.tensor.group] < 1
    assert hidden.nonzero()["all"] == hidden.counts()["mlp"] + hidden.counts()["head"] + 256  # the norm's scales


@ANY_RULE
def test_a_search_that_was_stopped_ends_as_an_unbroken_one(rule: str, tmp_path: Path) -> None:
    whole = search(rule)

    def fail(step: int, loss: float) -> None:
        if step == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(rule, out=tmp_path, checkpoint_seconds=0, progress=fail)
    assert not (tmp_path / "result.json").exists()
    seen: list[int] = []
    again = search(rule, out=tmp_path, progress=lambda step, _: seen.append(step))
    assert seen[0] in (9, 11), "goes on after the last checkpoint"
    finished = search(rule, out=tmp_path, progress=lambda step, _: seen.append(step))
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
def test_a_ticket_brings_back_what_was_evaluated(rule: str, tmp_path: Path) -> None:
    hidden = search(rule, out=tmp_path)
    ticket = st.Ticket.load(tmp_path / "best.ticket")
    assert ticket == hidden.to_ticket(ticket.metadata)
    assert ticket.verify().ok
    with torch.no_grad():
        expected = hidden.model.eval()(POINTS)
        assert torch.equal(st.load_ticket(make(), ticket).eval()(POINTS), expected)


@ANY_RULE
def test_a_module_in_float64_computes_with_what_its_ticket_holds(rule: str) -> None:
    hidden = st.hide(make().double().eval(), st.Policy(), seed=0, rule=rule)
    hidden.model(POINTS.double()).square().sum().backward()
    assert all(parameter.grad is not None for _, parameter in hidden.trainable())
    rebuilt = st.load_ticket(make().double().eval(), hidden.to_ticket())
    assert torch.equal(rebuilt(POINTS.double()), hidden.model(POINTS.double()))


@pytest.mark.parametrize(
    ("rule", "score"),
    [
        *((rule, 0.0) for rule in ("edge-popup", "iterand", "biprop", "signed", "multicoated", "gem-miner")),
        ("partially-frozen:frozen=0.01,scale=true", 0.0),
        ("signed:threshold=0.5", 0.0),
        ("bernoulli:final=threshold,rescale=true", -9.0),
        ("relaxed", -9.0),
    ],
)
def test_a_tensor_of_which_nothing_is_kept(rule: str, score: float) -> None:
    ranked = score == 0 and "threshold" not in rule
    policy = st.Policy(density=0.3, scope="global" if ranked else "tensor")
    hidden = st.hide(make().eval(), policy, seed=0, rule=rule)
    (tensor,) = (tensor for tensor in hidden.tensors if tensor.name == "4.weight")
    tensor.module.scores.detach().fill_(score)
    hidden.after_step()
    kept = int((hidden.rule.codes(tensor)[0] > 0).sum())
    assert kept == 0 if "frozen" not in rule else kept < 5  # of which the seed keeps some
    with torch.no_grad():
        expected = hidden.model(POINTS)
        assert expected.isfinite().all()
        assert torch.equal(st.load_ticket(make().eval(), hidden.to_ticket())(POINTS), expected)


def test_frozen_parts_take_no_bits() -> None:
    sizes = [
        len(st.hide(nn.Linear(200, 300), st.Policy(), seed=0, rule=rule).to_ticket().to_bytes())
        for rule in ("edge-popup", "partially-frozen:frozen=0.7", "partially-frozen:frozen=0.9")
    ]
    bits_of_all, other = 200 * 300 / 8 * 0.8813, sizes[0] - 200 * 300 / 8 * 0.8813  # the entropy of density 0.3
    assert [size - other for size in sizes[1:]] == pytest.approx([0.3 * bits_of_all, 0.1 * bits_of_all], abs=200)


def test_going_on_with_another_rule_is_refused(tmp_path: Path) -> None:
    search("signed", out=tmp_path, steps=2, validate_every=1)
    told = rf"{tmp_path} holds a run with other settings \(rule.*name: \"?signed\"? there, \"?biprop\"? here\)"
    with pytest.raises(st.StrongTicketError, match=told):
        search("biprop", out=tmp_path, steps=2, validate_every=1)
    with pytest.raises(st.StrongTicketError, match=r"other settings \(rule.*threshold: null there, 0.5 here\)"):
        search(Signed(threshold=0.5), out=tmp_path, steps=2, validate_every=1)


def test_masks_that_are_still_soft_when_the_search_ends_are_said() -> None:
    with pytest.warns(UserWarning, match=r"over 1,000 steps, but the search ends after 2, .*Use relaxed:steps=2\."):
        search("relaxed", steps=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        search("relaxed:steps=2", steps=2)


class Many(Signed):
    """More codes than a ticket has room for."""

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        return super().codes(tensor)[0], tuple((float(level), 0) for level in range(17))


def test_what_a_ticket_has_no_place_for_is_said(tmp_path: Path) -> None:
    hidden = search(Many(), out=tmp_path)
    told = "the rule signed found for 0.weight what no ticket holds: a table has 1 to 16 codes; got 17"
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


def test_iterand_leaves_a_weight_alone_after_its_last_draw() -> None:
    hidden = st.hide(make(), st.Policy(density=0.5), seed=1, rule=IteRand(every=1, rate=1.0))
    tensor = hidden.tensors[0]
    for _ in range(20):
        hidden.after_step()  # nothing is learned, so that the same weights are dropped
    codes, table = hidden.rule.codes(tensor)
    assert set(tensor.module.draws.unique().tolist()) == {0, 14}
    assert len(table) == 16
    assert int(codes.max()) < len(table)
    assert torch.equal(tensor.weight, torch.where(tensor.module.mask, tensor.draw(0), tensor.draw(14)))


class Penalized(Signed):
    """Constant draws, and scores that are pulled to 0."""

    def source(self, tensor: ModelTensor, policy: st.Policy) -> tuple[Distribution, float]:
        return "sign", 0.5

    def before_step(self, tensors: Sequence[HiddenTensor], step: int) -> None:
        for tensor in tensors:
            scores = tensor.module.get_parameter("scores")
            assert scores.grad is not None
            scores.grad += 100 * scores.detach()


def test_a_rule_may_draw_its_own_weights_and_add_a_penalty() -> None:
    penalized, plain = (search(rule, validation=None) for rule in (Penalized(), Signed()))
    drawn = [(row["distribution"], row["scale"]) for row in penalized.describe() if row["treatment"] == "masked"]
    assert drawn == [("sign", 0.5)] * 2
    sizes = [hidden.supermasks["0.weight"].scores.abs().mean().item() for hidden in (penalized, plain)]
    assert sizes[0] < 0.5 * sizes[1]


@ANY_RULE
def test_compiled(rule: str) -> None:
    torch.compiler.reset()  # there is a limit to what one process compiles
    hidden = st.hide(make(), st.Policy(), seed=3, rule=rule)
    hidden.model[3].p = 0.0
    results = []
    for model in (hidden.model, torch.compile(hidden.model, backend="aot_eager", fullgraph=True)):
        model(POINTS).square().sum().backward()
        results.append([p.grad for _, p in hidden.trainable()])
        hidden.model.zero_grad()
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@ANY_RULE
def test_on_a_gpu_a_step_waits_for_nothing(rule: str) -> None:
    here, there = (st.hide(make().to(device), st.Policy(), seed=3, rule=rule) for device in ("cpu", "cuda"))
    for a, b in zip(here.tensors, there.tensors, strict=True):
        if a.treatment == "masked":
            assert torch.equal(here.rule.codes(a)[0], there.rule.codes(b)[0].cpu()), a.name
    optimizer = torch.optim.AdamW([p for _, p in there.trainable()], lr=0.03, fused=True)
    batch = [POINTS.cuda(), LABELS.cuda()]

    def step() -> None:
        classify(there.model, batch).backward()
        there.before_step()
        optimizer.step()
        optimizer.zero_grad()
        there.after_step()

    for _ in range(4):
        step()  # kernels are compiled
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    there.model.eval()
    for tensor in there.tensors:
        if tensor.treatment == "masked":
            assert torch.equal(next(tensor.values(there.model)), rebuilt(there, tensor)), tensor.name


@ANY_RULE
def test_every_rule_runs_on_text(rule: str, tmp_path: Path) -> None:
    config = RunConfig(
        size="nano", length=32, sequences=4, steps=4, warmup=0, micro_batch=4, lr=0.01, policy=st.Policy(rule=rule)
    )
    result = run(config, load_text("sample"), tmp_path, Means(share=Share(0, 1, torch.device("cpu"))))
    assert json.loads((tmp_path / "config.json").read_text())["policy"]["rule"] == rule
    assert st.Ticket.load(tmp_path / result["found"]["ticket"]).build()
    other = replace(config, policy=st.Policy(rule="iterand:every=7"))
    name = rule.partition(":")[0]
    differs = "every: 4 there, 7 here" if name == "iterand" else f'name: "{name}" there, "iterand" here'
    with pytest.raises(st.StrongTicketError, match=rf"\(policy\.rule\.{differs}\)"):
        run(other, load_text("sample"), tmp_path, Means(share=Share(0, 1, torch.device("cpu"))))


@ANY_RULE
def test_a_tensor_without_weights_is_no_error(rule: str) -> None:
    model = nn.Sequential(nn.Linear(6, 0), nn.Linear(0, 2), nn.Linear(2, 1))
    hidden = st.search(model, [POINTS] * 5, loss=lambda run, x: run(x).square().mean(), rule=rule, steps=5)
    assert hidden.to_ticket().tensors["0.weight"].numel == 0


def test_an_unknown_rule_gets_the_list() -> None:
    for call in (lambda: search("magic"), lambda: st.Policy(rule="magic")):
        with pytest.raises(ValueError, match=r"rule must be one of edge-popup.*; got 'magic'"):
            call()
    with pytest.raises(ValueError, match=r"rule must be a name such as edge-popup, or a Rule object; got 3\.$"):
        search(3)  # type: ignore[arg-type]
    told = CliRunner().invoke(app, ["search", "--rule", "magic"])
    assert told.exit_code == 2
    assert "rule must be one of edge-popup" in told.output


def test_settings_are_read_from_the_name() -> None:
    assert as_rule("iterand:every=7,rate=0.25").settings() == {"name": "iterand", "every": 7, "rate": 0.25}
    assert as_rule("bernoulli: final=threshold, rescale=true").settings()["rescale"] is True
    assert as_rule("signed:threshold=none").settings()["threshold"] is None
    assert as_rule("iterand").settings() == {"name": "iterand", "every": 300, "rate": 0.1}
    for name in RULES:
        assert as_rule(name).name == name
        assert as_rule(name).default_lr == (0.1 if name == "bernoulli" else 1e-3)


@pytest.mark.parametrize("threshold", [0.001, 0.4, 0.99])
@pytest.mark.parametrize("init", ["kaiming", "normal"])
def test_a_threshold_keeps_the_density_at_first(init: Any, threshold: float) -> None:
    """Of scores of a fixed size, a threshold of 0.4 kept nothing, and a network of zeros has no gradient."""
    policy = st.Policy(density=0.3, score_init=init, densities={"4.*": 0.7})
    hidden = st.hide(make(), policy, seed=0, rule=f"signed:threshold={threshold}")
    for tensor in hidden.tensors:
        if tensor.treatment == "masked":
            kept = (hidden.rule.codes(tensor)[0] != 0).double().mean().item()
            assert kept == pytest.approx(tensor.density, abs=1.5 / tensor.tensor.numel), tensor.name


def test_a_ticket_has_no_more_codes_than_there_are_coats() -> None:
    hidden = st.hide(make(), seed=1, rule="multicoated:levels=2")
    assert hidden.rule.codes(hidden.tensors[0])[1] == ((0.0, 0), (1.0, 0), (2.0, 0))


def test_one_weight_that_is_kept_is_multiplied_by_all() -> None:
    hidden = st.hide(make(), seed=1, rule="bernoulli:rescale=true")
    tensor = hidden.tensors[0]
    tensor.module.get_buffer("mask").zero_().view(-1)[0] = True
    assert tensor.module.chosen(searching=True)[1] == tensor.weight.numel()
    hidden = st.hide(make(), seed=1, rule="partially-frozen:scale=true")
    tensor = hidden.tensors[0]
    for kept in (tensor.module.always, tensor.module.mask):
        kept.zero_()
    tensor.module.mask[0] = True
    assert float(tensor.module.chosen()[1]) == pytest.approx(math.sqrt(tensor.weight.numel()))


def test_help_has_a_line_for_each_rule_with_its_settings() -> None:
    page = CliRunner().invoke(app, ["search", "-h"], env={"COLUMNS": "100"}).stdout
    rules = page.partition("Rules, and their settings:\n")[2].partition("\n\n")[0]
    for name, (_, about) in RULES.items():
        assert f"\n  {name} " in f"\n{rules}"
        for setting in as_rule(name).settings().keys() - {"name"}:
            assert setting.upper() in about, (name, setting)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("iterand:every=0", "every of the rule iterand must be a whole number of at least 1; got 0."),
        ("iterand:every=2.5", "every of the rule iterand must be a whole number of at least 1; got 2.5."),
        ("iterand:rate=1.5", "rate of the rule iterand must be a number in 0 .. 1; got 1.5."),
        ("iterand:rate=nan", "rate of the rule iterand must be a number in 0 .. 1; got nan."),
        ("iterand:rate=often", "rate of the rule iterand must be a number in 0 .. 1; got 'often'."),
        ("iterand:evry=3", "the rule iterand has the settings every, rate, each written once as in .*; got 'evry=3'."),
        ("iterand:every=3,every=4", "the rule iterand has the settings every, rate, .*; got 'every=4'."),
        ("iterand:7", "the rule iterand has the settings every, rate, .*; got '7'."),
        ("edge-popup:every=3", "the rule edge-popup has no settings; got 'every=3'."),
        ("signed:threshold=2", "threshold of the rule signed must be a number or none in 0 .. 0.99; got 2."),
        ("multicoated:levels=16", "levels of the rule multicoated must be a whole number in 1 .. 15; got 16."),
        ("multicoated:shrink=0", "shrink of the rule multicoated must be a number in 0.01 .. 1; got 0."),
        ("bernoulli:final=last", "final of the rule bernoulli must be sample or threshold; got 'last'."),
        ("bernoulli:rescale=1", "rescale of the rule bernoulli must be true or false; got 1."),
        ("gem-miner:l2=-1", "l2 of the rule gem-miner must be a number of at least 0; got -1."),
        ("partially-frozen:frozen=1", "frozen of the rule partially-frozen must be a number in 0.01 .. 0.99; got 1."),
        ("relaxed:sharpness=0", "sharpness of the rule relaxed must be a number of at least 1; got 0."),
    ],
)
def test_bad_settings_of_a_rule(rule: str, told: str) -> None:
    with pytest.raises(ValueError, match=f"^{told}$") as caught:
        as_rule(rule)
    refused = CliRunner().invoke(app, ["search", "--rule", rule])
    assert refused.exit_code == 2
    assert refused.output == f"Error: {caught.value}\n"


@pytest.mark.parametrize(
    ("rule", "policy", "told"),
    [
        ("bernoulli", {"density_steps": 5}, "the rule bernoulli does not use density_steps; leave it at 0."),
        ("relaxed", {"scope": "global"}, "the rule relaxed does not use scope; leave it at 'tensor'."),
        ("signed", {"signed": True}, "the rule signed does not use signed; leave it at False."),
        ("signed:threshold=0.1", {"density_steps": 5}, "the rule signed does not use density_steps; leave it at 0."),
        ("gem-miner", {"score_init": "normal"}, "the rule gem-miner does not use score_init; .*"),
        (
            "edge-popup",
            {"densities": {"4.*": 1e-20}},
            "a density of 1e-20 keeps none of the 64 weights of 4.weight.",
        ),
        (
            "edge-popup",
            {"densities": {"1.*": 0.5}},
            "densities: no masked tensor matches '1.*'; the first is '0.weight'.",
        ),
    ],
)
def test_what_a_rule_cannot_do_is_refused_before_anything_changes(rule: str, policy: dict[str, Any], told: str) -> None:
    model = make()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(ValueError, match=f"^{told}$"):
        st.hide(model, st.Policy(**policy), seed=0, rule=rule)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@ANY_RULE
def test_a_module_without_a_weight_to_mask_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="the policy masks no tensor of this module, which has 2 in norms"):
        st.hide(nn.Sequential(nn.LayerNorm(3)), st.Policy(), seed=0, rule=rule)


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

    def over(self, tensor: HiddenTensor, scores: Tensor) -> nn.Module:
        return Wrong(self.turn)

    def codes(self, tensor: HiddenTensor) -> tuple[Tensor, Table]:
        return torch.ones(tensor.shape, dtype=torch.uint8), ((0.0, 0), (1.0, 0))


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (lambda w: w[:1], r"the rule wrong turns 0\.weight, torch.float32 \(32, 6\), into torch.float32 \(1, 6\)"),
        (lambda w: w.double(), r"the rule wrong turns 0\.weight, .* into torch.float64"),
        (lambda w: None, r"the rule wrong turns 0\.weight, .* into NoneType; a rule must keep shape and type"),
        (lambda w: w / 0, r"192 weights of 0\.weight are not finite under the rule wrong"),
    ],
)
def test_weights_of_another_shape_or_no_numbers(turn: Callable[[Tensor], Tensor], told: str) -> None:
    with pytest.raises((ValueError, st.StrongTicketError), match=told):
        st.hide(make(), st.Policy(), seed=0, rule=WrongRule(turn))


def test_weights_that_become_no_numbers_are_named_and_not_only_the_loss() -> None:
    rule = WrongRule(lambda w: w * (1 if not torch.is_grad_enabled() else torch.nan))
    with pytest.raises(st.StrongTicketError, match=r"192 weights of 0\.weight are not finite under the rule wrong"):
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
    with pytest.raises(
        st.StrongTicketError, match=rf"^{name} computes with other weights than its ticket would restore"
    ):
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


def test_a_rule_is_a_short_file() -> None:
    files = {type(as_rule(name)).__module__.rpartition(".")[2] for name in RULES}
    lengths = {
        file: len((Path(rules_folder.__file__).parent / f"{file}.py").read_text().splitlines()) for file in files
    }
    assert max(lengths.values()) <= 60, lengths
