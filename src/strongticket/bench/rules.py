"""Every rule on handwritten digits: accuracy and size of the tickets, and the time to find them.

1,797 images of 8 x 8 pixels from scikit-learn, 360 of them for testing. Each network is drawn as `st.search` does by
default, each rule has its best learning rate of a first trial, and all have the same number of steps. `trained` is the
same network with all its weights trained, biases included, stored in float32.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache, partial
from itertools import chain, islice, pairwise, product, repeat
from statistics import median

import torch
from torch import Tensor, nn

from strongticket.bench.measure import ratio, time_alternating
from strongticket.bench.settings import NETWORKS, TRAINED, RulesSettings
from strongticket.errors import MissingExtraError
from strongticket.learn.hide import default_policy, hide
from strongticket.learn.modules import search
from strongticket.learn.rules import RULES
from strongticket.learn.rules.rule import straight_through
from strongticket.learn.step import Step, make_optimizer
from strongticket.parallel import one_thread, run_tasks
from strongticket.report.records import RuleRun, RuleStep

Keep = Callable[[RuleRun], object]
Task = tuple[str, str, float, int, int]  # network, rule, density, seed and steps
Batch = tuple[Tensor, Tensor]

BATCH, TEST, RATE = 64, 360, 1e-2
# AdamW's learning rate, if not the default: the best of five for 48-24 at density 0.3, on held-out training images.
RATES = {
    "edge-popup": 3e-3, "biprop": 3e-3, "partially-frozen": 3e-3, "iterand": 3e-2, "signed": 3e-2, "gem-miner": 3e-2,
    "relaxed": 3e-2, "bernoulli": 1.0,
}  # fmt: skip
# Other settings of a rule; some depend on the length of a run.
SETTINGS = {
    "iterand": "iterand:every={tenth},rate=0.1",
    "relaxed": "relaxed:steps={steps}",
    "bernoulli": "bernoulli:final=threshold",
}
TIMED, TURNS = 10, 9  # steps per turn, and turns


def run(settings: RulesSettings, done: Iterable[RuleRun], keep: Keep) -> list[RuleRun]:
    """Do the remaining runs; each is saved as soon as it is finished."""
    kept = {(row.network, row.rule, row.density, row.seed, row.steps): row for row in done}
    asked = tasks_of(settings)
    tasks = [task for task in asked if task not in kept]
    kept |= zip(
        tasks, run_tasks(run_task, tasks, workers=settings.jobs, progress=lambda _, row: keep(row)), strict=True
    )
    return [kept[task] for task in asked]


def tasks_of(settings: RulesSettings) -> list[Task]:
    """List all runs: every density of every rule, and the trained network once per seed."""
    cases = [(TRAINED, 1.0), *product(settings.chosen_rules, settings.densities)]
    seeds = range(settings.seeds)
    return [
        (n, rule, density, seed, settings.steps) for n in settings.networks for rule, density in cases for seed in seeds
    ]


def run_task(task: Task) -> RuleRun:
    """Search or train one network, and measure it."""
    network, rule, density, seed, steps = task
    train, test = digits()
    torch.manual_seed(seed)
    model, batches = make(network), Shuffled(train)
    begin = time.process_time()
    if rule == TRAINED:
        _train(model, batches, steps)
        kept = numbers = sum(parameter.numel() for parameter in model.parameters())
        size = 4 * numbers
    else:
        chosen = SETTINGS.get(rule, rule).format(steps=steps, tenth=max(1, steps // 10))
        ramp = steps // 2 if rule == "gem-miner" else 0
        policy = replace(default_policy(model), density=density, rule=chosen, density_steps=ramp)
        hidden = search(model, batches, policy=policy, seed=seed, loss=_loss, steps=steps, lr=RATES.get(rule, RATE))
        ticket = hidden.to_ticket()
        kept, numbers, size = ticket.kept(), ticket.numel, len(ticket.to_bytes())
    seconds = time.process_time() - begin
    return RuleRun(
        network=network, rule=rule, density=density, seed=seed, steps=steps, accuracy=_accuracy(model, test),
        bytes=size, seconds=round(seconds, 3), kept=kept, weights=numbers,
    )  # fmt: skip


def make(network: str) -> nn.Module:
    """Make one of the networks: by its name, or of linear layers of some widths with ReLUs between them."""
    if network == "conv":
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            *_convolution(1, 32),
            *_convolution(32, 64),
            nn.Flatten(),
            nn.Linear(256, 10),
        )
    widths = NETWORKS.get(network) or map(int, network.split("-"))
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]


@cache
def digits() -> tuple[Batch, Batch]:
    """Read the images, from 0 to 1, and the labels, for training and testing."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError:
        raise MissingExtraError("the digits come with scikit-learn: pip install 'strongticket[digits]'") from None
    images, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    x, y = torch.tensor(images, dtype=torch.float32)[order] / 16, torch.tensor(labels)[order]
    return (x[TEST:], y[TEST:]), (x[:TEST], y[:TEST])


class Shuffled:
    """Batches of some data, in another order at each pass."""

    def __init__(self, data: Batch) -> None:
        self._x, self._y = data

    def __len__(self) -> int:
        return len(self._y) // BATCH

    def __iter__(self) -> Iterator[Batch]:
        for places in torch.randperm(len(self._y))[: len(self) * BATCH].view(-1, BATCH):
            yield self._x[places], self._y[places]


def _loss(model: nn.Module, batch: Batch) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def _train(model: nn.Module, batches: Shuffled, steps: int) -> None:
    rate = RATES.get(TRAINED, RATE)
    optimizer = make_optimizer(model.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    step = Step(model, optimizer, loss=_loss)
    for batch in islice(chain.from_iterable(repeat(batches)), steps):
        step([batch])
        schedule.step()


@torch.no_grad()
def _accuracy(model: nn.Module, test: Batch) -> float:
    right: Tensor = model.eval()(test[0]).argmax(dim=1) == test[1]
    return int(right.sum()) / len(right)


# --- What a step costs -----------------------------------------------------------------------------------------------


def step_times() -> list[RuleStep]:
    """Time steps of every rule, of dense training, and of published edge-popup code, in turns on one thread."""
    with one_thread():
        return [row for case in TIMED_NETWORKS for row in _step_times(*case)]


# Network, inputs, batch.
TIMED_NETWORKS = (("784-300-100-10", 784, 128), ("64-256-256-10", 64, 128), ("64-48-24-10", 64, 64), ("conv", 64, 64))


def _step_times(name: str, width: int, batch: int) -> list[RuleStep]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(batch, width, generator=generator)
    labels = torch.randint(10, (batch,), generator=generator)

    dense, published = make(name), make(name)
    for module in published.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.utils.parametrize.register_parametrization(
                module.requires_grad_(False), "weight", Published(module.weight)
            )
    steps = {
        other: Step(model, _adam(model), loss=_loss) for other, model in (("dense", dense), ("published", published))
    }
    for rule in RULES:
        hidden = hide(make(name), seed=0, rule=rule)
        prepare, refresh = hidden.before_step, hidden.after_step
        steps[rule] = Step(hidden.model, _adam(hidden.model), loss=_loss, prepare=prepare, refresh=refresh)

    def turn(step: Step) -> None:
        for _ in range(TIMED):
            step([(inputs, labels)])

    turns = {name: partial(turn, step) for name, step in steps.items()}
    seconds = time_alternating(turns, repeats=TURNS, clock=time.process_time)
    milliseconds = 1000 * median(seconds["dense"]) / TIMED
    return [
        RuleStep(
            network=name, batch=batch, dense_ms=milliseconds, over_dense=ratio(seconds[rule], seconds["dense"]),
            over_published=ratio(seconds[rule], seconds["published"]), rule=rule,
        )
        for rule in RULES
    ]  # fmt: skip


def _adam(model: nn.Module) -> torch.optim.AdamW:
    return make_optimizer([parameter for parameter in model.parameters() if parameter.requires_grad], lr=1e-3)


class Published(nn.Module):
    """Edge-popup as in published scripts: all scores are sorted in every forward pass."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.rand_like(weight) - 0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """Keep half of the weights."""
        scores = self.scores.abs()
        order = scores.detach().flatten().argsort()
        mask = torch.ones_like(scores).flatten()
        mask[order[: len(order) // 2]] = 0
        return weight * straight_through(scores, mask.view_as(scores))
