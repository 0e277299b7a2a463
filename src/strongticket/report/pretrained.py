"""Pretrained models as tickets: how close outputs come as each entry gets more random products to choose from."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from strongticket.charts.parts import SERIES, SMALLEST, Chart, Dash, Section, Series, Table, View, number
from strongticket.report.certificates import certificate_view
from strongticket.report.find import ComparedModel, Result
from strongticket.report.origin import origin
from strongticket.report.records import Collected, Compared, Pretrained, typed


def collected_section(result: Result) -> Section:
    """Show a result that holds the comparisons of one model, as `strongticket.bench.pretrained` collects them."""
    runs = typed(Collected, result.content)
    return _section(runs.model, runs.runs, origin([result.path], result.made))


def single_section(models: Sequence[ComparedModel]) -> Section:
    """Show comparisons that lie about as single files."""
    where = origin([model.path for model in models], [model.made for model in models])
    return _section("A pretrained model", [model.content for model in models], where)


def _section(model: str, runs: Sequence[Pretrained], where: Mapping[str, str]) -> Section:
    runs = sorted(runs, key=lambda run: (run.what, run.items))
    last = runs[-1].compare
    chart = Chart(
        title=f"{model} and its tickets on the same text",
        caption=f"{last.texts:,} texts, {last.tokens:,} tokens. Parts: each on the inputs it has in the "
        "original, its largest error against its certificate, which holds for every input of the norm.",
        views=[view for view in (*map(partial(_view, runs), _VIEWS), _part_view(runs)) if view is not None],
        tables=(_table(runs),),
    )
    best = min(runs, key=lambda run: run.compare.largest_difference)
    return Section(
        anchor="pretrained",
        name="Pretrained",
        title=f"{model} inside a random network",
        lead="Every matrix that became random is a seed and a mask; nothing was trained. How close do the ticket’s "
        "outputs come to the original’s as each entry has more random products to choose from?",
        finding=f"{best.what}, {best.items} items an entry: {_closeness(best.compare)}",
        blocks=(chart,),
        origin=where,
    )


class _Line(NamedTuple):
    label: str
    dash: Dash
    value: Callable[[Pretrained], float | None]


class _View(NamedTuple):
    """Values against items; shown where every run has them."""

    name: str
    y: str
    lines: tuple[_Line, ...]


_VIEWS = (
    _View(
        "Similarity",
        "1 − cosine similarity",
        (
            _Line("mean", "solid", lambda run: 1 - run.compare.cosine["mean"] if run.compare.cosine else None),
            _Line("worst text", "dashed", lambda run: 1 - run.compare.cosine["min"] if run.compare.cosine else None),
        ),
    ),
    _View(
        "Outputs",
        "difference of an output",
        (
            _Line("largest difference", "solid", lambda run: run.compare.largest_difference),
            _Line("what float32 alone changes", "dotted", lambda run: run.compare.float32_rounding),
        ),
    ),
    _View(
        "Entries",
        "error of a merged entry",
        (
            _Line("worst entry", "solid", lambda run: run.ticket.worst_entry),
            _Line("worst within reach", "dashed", lambda run: run.ticket.worst_reached),
        ),
    ),
)


def _view(runs: Sequence[Pretrained], view: _View) -> View | None:
    """Draw values against items, one colour for each kind of ticket."""
    series = []
    for what, colour in zip(dict.fromkeys(run.what for run in runs), SERIES, strict=False):
        for line in view.lines:
            values = [(run.items, line.value(run)) for run in runs if run.what == what]
            points = [(float(items), max(value, SMALLEST)) for items, value in values if value is not None]
            if len(points) < len(values):
                return None
            series.append(Series(name=f"{what}: {line.label}", points=points, colour=colour, dash=line.dash))
    return View(name=view.name, x="items an entry", y=view.y, series=series)


def _part_view(runs: Sequence[Pretrained]) -> View:
    series = [
        Series(
            name=f"{run.what}, {run.items} items",
            points=[(max(part.certified, SMALLEST), max(part.error, SMALLEST)) for part in run.compare.parts],
            colour=colour,
            line=False,
            notes=[part.part for part in run.compare.parts],
        )
        for run, colour in zip(runs, SERIES, strict=False)
    ]
    return certificate_view("Parts", series, "certified error of a part", "largest error")


def _table(runs: Sequence[Pretrained]) -> Table:
    rows = [
        (
            run.what,
            str(run.items),
            _closeness(run.compare),
            number(run.compare.largest_difference),
            number(run.compare.float32_rounding),
            f"{run.ticket.unreachable:,}" if run.ticket.unreachable is not None else "–",
            f"{run.ticket.file_bytes / 1e6:.1f} MB" if run.ticket.file_bytes is not None else "–",
            number(min((part.certified / part.error for part in run.compare.parts if part.error), default=None)),
        )
        for run in runs
    ]
    columns = ("what", "items", "closeness", "largest difference", "float32 rounding", "out of reach", "ticket")
    return Table(caption="By the number of items", columns=(*columns, "least certificate / error"), rows=rows)


def _closeness(compare: Compared) -> str:
    if compare.cosine is not None:
        return f"cosine similarity {compare.cosine['mean']:.7f}, worst {compare.cosine['min']:.7f}"
    if compare.loss is None:
        raise KeyError("loss")
    losses = f"loss {compare.loss['ticket']:.4f} (original {compare.loss['original']:.4f})"
    return f"{losses}, KL divergence {number(compare.kl)}"
