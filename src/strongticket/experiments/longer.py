"""Does the gap between tickets and trained models close with more text, or with a larger model?"""

from collections.abc import Sequence
from dataclasses import replace

from strongticket.charts.parts import SERIES, Chart, Section, grouped, sentence, signed, table_of
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure
from strongticket.experiments.paired import Pair, paired_difference
from strongticket.experiments.text_figure import Choice, TextRuns
from strongticket.experiments.text_rows import BEST, Losses, RunRow, TextResult, by_seed, losses_of, tokens_of
from strongticket.learn.config import RunConfig
from strongticket.learn.policy import Policy

LONG_STEPS = 30_500  # of 33k tokens: a billion
KINDS = ("ticket", "ticket, scale 1", "trained model")
GAIN = 2.0
RULE = "signed:threshold=0"  # the best strong tickets of the frontier


class Length(Losses):
    """Runs of one kind and length."""

    size: str
    kind: str
    tokens: int
    gap: Pair | None  # to the trained model


class Result(TextResult):
    """What `result.json` holds."""

    lengths: list[Length]


def plan(choice: Choice) -> list[RunConfig]:
    """List the same three runs with the short schedule and, for mini, with a billion tokens."""
    runs = []
    for seed, size in choice.seeds_and_sizes():
        base = replace(schedules.base(choice.schedule, size), seed=seed)
        runs += _three(base)
        if size == "mini" and choice.schedule == "short" and seed == 0:
            runs += _three(schedules.shortened(base, LONG_STEPS))
    return runs


def _three(base: RunConfig) -> list[RunConfig]:
    scales = (schedules.theory_scale(base.size), 1.0)
    tickets = [Policy(init="sign", rule=RULE, output_gain=GAIN, qk_scale=scale) for scale in scales]
    trained = schedules.dense(base, seed=base.seed)
    return [
        *(replace(schedules.times_warmup(base, 4), policy=policy) for policy in tickets),
        schedules.times_warmup(trained, schedules.LONGEST),
    ]


def summarize(rows: Sequence[RunRow]) -> dict[str, list[Length]]:
    """Compute losses of each kind at each length, and the gap between tickets and the trained model."""
    groups = grouped(rows, lambda row: (row["config"]["size"], tokens_of(row["config"]), _kind(row)))
    lengths: list[Length] = []
    for (size, tokens, kind), members in groups.items():
        trained = groups.get((size, tokens, KINDS[2]), [])
        gap = None if kind == KINDS[2] else paired_difference(by_seed(trained, BEST), by_seed(members, BEST))
        lengths.append({"size": size, "kind": kind, "tokens": tokens, **losses_of(members), "gap": gap})
    return {"lengths": lengths}


def _kind(row: RunRow) -> str:
    config = row["config"]
    if config["mode"] == "dense":
        return KINDS[2]
    return KINDS[1] if config["policy"]["qk_scale"] == 1 else KINDS[0]


def describe(result: Result) -> Section:
    """Show losses against tokens seen, and the remaining gap."""
    lengths = result["lengths"]
    curves = grouped(sorted(lengths, key=lambda line: line["tokens"]), lambda line: (line["size"], line["kind"]))
    series = [
        losses.over_seeds(
            f"{size}, {kind}",
            [line["tokens"] for line in own],
            [line[BEST] for line in own],
            colour=SERIES[KINDS.index(kind)],
            dash="solid" if size == "mini" else "dashed",
        )
        for (size, kind), own in curves.items()
    ]
    gaps: list[losses.Line[Pair]] = [
        ((line["size"], line["kind"], f"{losses.million(line['tokens'])}"), gap, SERIES[KINDS.index(line["kind"])])
        for line in lengths
        if (gap := line["gap"]) is not None
    ]
    table = table_of(
        "Losses",
        lengths,
        {
            "model": lambda line: line["size"],
            "what": lambda line: line["kind"],
            "tokens": lambda line: losses.million(line["tokens"]),
            **losses.loss_columns(lengths),
        },
        words=2,
    )
    found = "; ".join(f"{' '.join(words)}: {signed(gap['mean'])} above trained" for words, gap, _ in gaps)
    chart = Chart(
        title=sentence(found) or "Losses by the amount of text",
        caption=f"{losses.setting(result)}.",
        views=[losses.view("tokens seen", series)],
        tables=[table],
    )
    return Section(
        anchor="longer",
        name="Longer and larger",
        title="Does the gap close with more text, or in a larger model?",
        lead="The best strong ticket, the same ticket without the scale of Q and K, and the trained model, with more "
        "text and in a larger model.",
        finding=found,
        blocks=(
            chart,
            *losses.compare_pairs(
                gaps,
                title="How far tickets are above trained models",
                caption=losses.caution([gap["n"] for _, gap, _ in gaps]),
                words=("model", "what", "tokens"),
                axis="ticket − trained model, nats per token",
            ),
        ),
    )


FIGURE = Figure(
    name="longer", plan=TextRuns(runs=plan, summarize=summarize, usual={"mini": 1, "medium": 1}), describe=describe
)
