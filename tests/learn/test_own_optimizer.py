"""The caller's own optimizer and learning-rate schedule: used as they are, and resumed exactly."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import LBFGS, SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, OneCycleLR, ReduceLROnPlateau

import strongticket as st
from strongticket.learn.optimizers import Named
from strongticket.ops.supermask import reference

POINTS = torch.randn(48, 6, generator=torch.Generator().manual_seed(0))
LABELS = (POINTS[:, 0] > POINTS[:, 1]).long()
STEPS = 15
SLOW_SGD = partial(SGD, lr=0.5, momentum=0.9)


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))


def classify(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def search(**more: Any) -> st.Hidden:
    batches = [(POINTS[i::3], LABELS[i::3]) for i in range(3)]
    return st.search(make(), batches, loss=classify, density=0.5, steps=STEPS, **more)


def by_group(named: Named) -> SGD:
    scores, others = ([p for name, p in named if name.endswith("scores") == wanted] for wanted in (True, False))
    return SGD([{"params": scores, "lr": 0.5}, {"params": others, "lr": 0.01}], momentum=0.9)


@pytest.mark.parametrize(
    ("optimizer", "schedule"),
    [
        (SLOW_SGD, None),
        (SLOW_SGD, partial(CosineAnnealingLR, T_max=STEPS)),
        (by_group, partial(OneCycleLR, max_lr=[0.5, 0.01], total_steps=STEPS + 1)),
        (None, partial(LambdaLR, lr_lambda=lambda step: 0.9**step)),
    ],
)
def test_a_stopped_search_goes_on_as_if_it_never_had(
    optimizer: Callable[[Named], Any] | None, schedule: Any, tmp_path: Path
) -> None:
    own = {"optimizer": optimizer, "schedule": schedule, "policy": st.Policy(biases="trained")}
    whole = search(**own)

    def fail(step: int, loss: float) -> None:
        if step == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(**own, out=tmp_path, checkpoint_seconds=0, progress=fail)
    seen: list[int] = []
    again = search(**own, out=tmp_path, progress=lambda step, _: seen.append(step))
    assert seen == [11, 12, 13, 14, 15]
    assert again.to_ticket().identity == whole.to_ticket().identity
    for (name, mine), (_, theirs) in zip(whole.trainable(), again.trainable(), strict=True):
        assert torch.equal(mine, theirs), name


def test_it_is_a_plain_loop_with_that_optimizer() -> None:
    hidden = search(optimizer=SLOW_SGD, schedule=partial(CosineAnnealingLR, T_max=STEPS))
    other = st.hide(make(), hidden.policy, seed=0)
    scores = [parameter for _, parameter in other.trainable()]
    weights = [tensor.weight.clone() for tensor in other.tensors if tensor.treatment == "masked"]
    optimizer = SLOW_SGD(scores)
    schedule = CosineAnnealingLR(optimizer, T_max=STEPS)
    for step in range(STEPS):
        masks = [reference.top_mask(s, 0.5) for s in scores]
        first, second = (reference.masked_weight(w, s, m) for w, s, m in zip(weights, scores, masks, strict=True))
        x, y = POINTS[step % 3 :: 3], LABELS[step % 3 :: 3]
        loss = nn.functional.cross_entropy(torch.relu(x @ first.T) @ second.T, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    for (name, found), expected in zip(hidden.trainable(), scores, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6, msg=name)


def test_its_learning_rate_stays_unless_there_is_a_schedule() -> None:
    kept: list[Any] = []

    def keep(named: Named) -> SGD:
        kept.append(SGD(named, lr=0.25))
        return kept[-1]

    search(optimizer=keep)
    assert kept[0].param_groups[0]["lr"] == 0.25


def test_another_optimizer_is_another_search(tmp_path: Path) -> None:
    search(optimizer=SLOW_SGD, out=tmp_path)
    for other, told in (
        (partial(SGD, lr=0.25, momentum=0.9), r"optimizer\.groups\[0\]\.lr: 0\.5 there, 0\.25 here"),
        (partial(Adam, lr=0.5), r'optimizer\.name: "SGD" there, "Adam" here'),
        (None, r'optimizer: \{"name": "SGD", .{,110}\.\.\. there, null here'),
    ):
        with pytest.raises(st.StrongTicketError, match=rf"a run with other settings \({told}\)\. Choose another out, "):
            search(optimizer=other, out=tmp_path)


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"optimizer": SLOW_SGD, "lr": 0.1}, "lr has no effect beside optimizer=; set it there"),
        ({"optimizer": SLOW_SGD, "weight_decay": 0.1}, "weight_decay has no effect beside optimizer="),
        ({"schedule": partial(CosineAnnealingLR, T_max=3), "warmup": 2}, "warmup has no effect beside schedule="),
        (
            {"optimizer": lambda named: SGD([named[0][1]], lr=1)},
            r"must update all 2 parameters .* lacks 2.weight.scores",
        ),
        ({"optimizer": lambda named: None}, "return a torch Optimizer; got NoneType"),
        ({"optimizer": "sgd"}, r"as partial\(torch.optim.SGD, lr=0.1\) does; got str"),
        ({"optimizer": lambda named: LBFGS([p for _, p in named])}, "LBFGS needs the loss several times"),
        ({"rule": 5}, "rule must be a name such as edge-popup, or a Rule object; got 5"),
        ({"rule": st.Rule}, "rule must be a name such as edge-popup, or a Rule object; got <class"),
        ({"optimizer": SLOW_SGD, "schedule": ReduceLROnPlateau}, "needs no loss; got ReduceLROnPlateau"),
    ],
)
def test_what_cannot_be_is_said(more: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        search(**more)
