"""How good can a network be for its bytes? Tickets that were never trained, against models trained in few bits.

Every run sees the same tokens. Bytes are those of the whole file: masks or rounded weights, scales and header, but no
tokenizer. `docs/frontier.md` has the plan, the selection rules and the cost.
"""

from collections.abc import Sequence
from typing import NotRequired, TypedDict

from strongticket.charts.parts import Chart, Colour, Section, Series, Table, grouped, table_of
from strongticket.experiments import losses, schedules
from strongticket.experiments.figure import Figure, NothingToDrawError
from strongticket.experiments.frontier_plan import FLIP, plan
from strongticket.experiments.paired import Spread, spread
from strongticket.experiments.text_figure import TextRuns
from strongticket.experiments.text_rows import BEST, Losses, RunRow, TextResult, at_best_settings, losses_of, tokens_of
from strongticket.files import canonical_json
from strongticket.learn.config import settings_that_count
from strongticket.learn.policy import Policy
from strongticket.learn.result import RunSettings

MB = 1_000_000
HIGHEST = 6.0  # loss that the chart shows; random guessing has 10.8
BUDGETS = tuple(round(size * MB) for size in (1.25, 2.5, 4.9, 10, 20))
STRONG, SCALED = "strong tickets", "tickets with learned scales"
KINDS: dict[str, Colour] = {
    STRONG: "s0",
    SCALED: "s1",
    "trained bfloat16": "s2",
    "trained int8": "s3",
    "trained int4": "s4",
    "trained int3": "s5",
    "trained ternary": "s6",
    "trained binary": "s7",
}
# Settings that do not change the file: the best of these is chosen for each point.
_SCHEDULE = (
    *("lr", "final_lr", "warmup", "weight_decay", "clip"),
    *("sequences", "micro_batch", "steps", "validate_every", "precision"),
)


class Point(Losses):
    """A network stored in some number of bytes, over seeds, with the best schedule tried."""

    kind: str
    name: str  # what it is, for people
    bytes: Spread
    config: RunSettings  # of its first run, without later settings it does not use
    schedules: int  # how many were tried
    leads: bool  # nothing of its kind is as small and better


class Found(TypedDict):
    """What the runs show."""

    points: list[Point]
    budgets: NotRequired[list[int]]


class Result(TextResult, Found):
    """What `result.json` holds."""


def summarize(rows: Sequence[RunRow]) -> Found:
    """Make a point for each stored network with its best schedule, and mark those that lead."""
    points = [_point(members) for members in grouped([row for row in rows if "bytes" in row["found"]], _what).values()]
    if not points:
        raise NothingToDrawError("frontier has no run yet that records the bytes of its file.")
    for point in points:
        point["leads"] = not any(_beats(other, point) for other in points if other["kind"] == point["kind"])
    points.sort(key=lambda point: ([*KINDS].index(point["kind"]), point["bytes"]["mean"]))
    return {"points": points, "budgets": list(BUDGETS)}


def _point(rows: Sequence[RunRow]) -> Point:
    def schedule(row: RunRow) -> str:
        return canonical_json({key: value for key, value in row["config"].items() if key in _SCHEDULE})

    best = at_best_settings(rows, schedule)
    config = best[0]["config"]
    return {
        "kind": kind_of(config),
        "name": name_of_point(config),
        "bytes": spread([float(row["found"]["bytes"]) for row in best]),
        **losses_of(best),
        "config": settings_that_count(config),
        "schedules": len({schedule(row) for row in rows}),
        "leads": False,
    }


def _what(row: RunRow) -> str:
    """Identify a point by all settings but the schedule and the seed."""
    return canonical_json({key: value for key, value in row["config"].items() if key not in (*_SCHEDULE, "seed")})


def _beats(one: Point, other: Point) -> bool:
    """Tell whether a point takes no more bytes and has a lower loss."""
    sizes, found = ((one[key]["mean"], other[key]["mean"]) for key in ("bytes", BEST))
    return sizes[0] <= sizes[1] and found[0] < found[1]


def kind_of(config: RunSettings) -> str:
    """Name the curve a run belongs to."""
    if config["mode"] == "dense":
        return f"trained {config['stored']}"
    policy = config["policy"]
    learned = policy["scales"] != "none" or "trained" in (policy["norms"], policy["biases"])
    return SCALED if learned else STRONG


def name_of_point(config: RunSettings) -> str:
    """Name in a few words what is stored.

    Example:
        >>> from strongticket.experiments.frontier_plan import config_of, ticket
        >>> name_of_point(config_of(ticket(scales="block"), "short").as_json())
        'mini, edge-popup, density 0.5, sign, gain 4, scales block'
    """
    if config["mode"] == "dense":
        return str(config["size"])
    policy, words = config["policy"], [config["size"], config["policy"]["rule"]]
    if policy["rule"] != FLIP:
        words.append(f"density {policy['density']:g}")
    words += [policy["init"], f"gain {policy['output_gain']:g}"]
    usual = Policy()
    if policy["qk_scale"] != schedules.theory_scale(config["size"]):
        words.append(f"scale {policy['qk_scale']:g}")
    if policy["factors"] != usual.factors:
        words += [f"{name} times {factor:g}" for name, factor in policy["factors"].items()]
    for key in ("embeddings", "norms", "biases", "signed", "score_init", "rescale", "scales", "density_steps"):
        if policy[key] != getattr(usual, key):
            words.append(f"{key.replace('_', ' ')} {policy[key]}" if policy[key] is not True else key)
    return ", ".join(words)


def describe(result: Result) -> Section:
    """Show losses against bytes, the best of each kind joined, and the best of each kind within a number of bytes."""
    points = result["points"]
    shown = [point for point in points if point[BEST]["mean"] <= HIGHEST]
    left_out = len(points) - len(shown)
    chart = Chart(
        title=_message(points),
        caption=f"{losses.setting(result)}; {losses.seeds(len(point['seeds']) for point in points)}. Every run saw "
        f"{losses.million(tokens_of(points[0]['config']))} tokens. Lines join the points that nothing smaller of the "
        "same kind beats; other settings tried are single points. Bytes are those of the whole file without a "
        "tokenizer; all files use the same entropy coding."
        + f" Above {HIGHEST:g} nats, in the table alone: {left_out}."
        * (left_out > 0),
        views=[
            losses.view(
                "bytes of the file",
                [series for kind in KINDS for series in _series(kind, shown)],
                upright=[(4.9 * MB, "4.9 MB")],
            )
        ],
        tables=[_budget_table(points, result.get("budgets", list(BUDGETS))), _points_table(points)],
    )
    return Section(
        anchor="frontier",
        name="The best ticket per byte",
        title=_title(points),
        lead="A ticket is a seed and about one bit per weight, and no weight is trained. How does it compare with "
        "trained models of the same file size, with fewer weights in 16, 8 or 4 bits or ternary, rounded in training?",
        finding=_finding(points),
        blocks=(chart,),
    )


def _series(kind: str, points: Sequence[Point]) -> list[Series]:
    own = [point for point in points if point["kind"] == kind]
    groups = ([point for point in own if point["leads"]], [point for point in own if not point["leads"]])
    return [
        losses.over_seeds(
            kind if leads else f"{kind}, others",
            [point["bytes"]["mean"] for point in chosen],
            [point[BEST] for point in chosen],
            colour=KINDS[kind],
            dash="solid" if kind in (STRONG, SCALED) else "dashed",
            line=leads,
            thin=not leads,
            follows=not leads,
            notes=[f"{point['name']}, {len(point['seeds'])} seed{'s' * (len(point['seeds']) > 1)}" for point in chosen],
        )
        for leads, chosen in zip((True, False), groups, strict=True)
        if chosen
    ]


def _budget_table(points: Sequence[Point], budgets: Sequence[int]) -> Table:
    kinds = [kind for kind in KINDS if any(point["kind"] == kind for point in points)]

    def cell(kind: str, budget: int) -> str:
        best = best_within(points, budget, (kind,))
        return "–" if best is None else losses.loss(best[BEST])

    rows = [(f"{budget / MB:g} MB", *(cell(kind, budget) for kind in kinds)) for budget in budgets]
    return Table(caption="The lowest loss within a number of bytes", columns=("bytes", *kinds), rows=rows)


def _points_table(points: Sequence[Point]) -> Table:
    return table_of(
        "Everything tried, each with its best schedule",
        points,
        {
            "kind": lambda point: point["kind"],
            "what": lambda point: ("★ " if point["leads"] else "") + point["name"],
            "bytes": lambda point: f"{point['bytes']['mean']:,.0f}",
            **losses.loss_columns(points),
            "learning rate": lambda point: f"{point['config']['lr']:.2g}",
            "warm-up": lambda point: f"{point['config']['warmup']:,} of {point['config']['steps']:,}",
            "schedules": lambda point: str(point["schedules"]),
        },
        words=2,
    )


def best_within(points: Sequence[Point], budget: int, kinds: Sequence[str]) -> Point | None:
    """Return the point of the lowest loss whose file fits the budget with every seed."""
    fitting = [point for point in points if point["kind"] in kinds and max(point["bytes"]["values"]) <= budget]
    return min(fitting, key=lambda point: point[BEST]["mean"], default=None)


def _lowest(points: Sequence[Point]) -> dict[str, float]:
    """Return the lowest loss of each kind within 4.9 MB."""
    found = {kind: best_within(points, round(4.9 * MB), (kind,)) for kind in KINDS}
    return {kind: best[BEST]["mean"] for kind, best in found.items() if best is not None}


def _title(points: Sequence[Point]) -> str:
    lowest = _lowest(points)
    if lowest.keys() <= {STRONG, SCALED} or lowest.keys().isdisjoint({STRONG, SCALED}):
        return "How good a network can be for its bytes"  # nothing to compare
    first = "tickets" if min(lowest, key=lowest.__getitem__) in (STRONG, SCALED) else "trained models"
    return f"At equal bytes, {first} are ahead"


def _message(points: Sequence[Point]) -> str:
    lowest = _lowest(points)
    if not lowest:
        return "Losses by the bytes of the file"
    first = min(lowest, key=lowest.__getitem__)
    strong = f"; strong tickets reach {lowest[STRONG]:.3f}" if STRONG in lowest and first != STRONG else ""
    return f"Lowest loss within 4.9 MB: {lowest[first]:.3f}, {first}{strong}"


def _finding(points: Sequence[Point]) -> str:
    said = ", ".join(f"{kind} {loss:.3f}" for kind, loss in _lowest(points).items())
    return f"within 4.9 MB: {said}" if said else ""


FIGURE = Figure(
    name="frontier",
    plan=TextRuns(runs=plan, summarize=summarize, usual={"mini": 3, "small": 1}),
    describe=describe,
)
