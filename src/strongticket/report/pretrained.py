"""Pretrained models as tickets: how close outputs come with more random products per entry."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product

from strongticket.charts.parts import (
    SERIES,
    SMALLEST,
    Chart,
    Dash,
    Section,
    Series,
    Table,
    View,
    changes,
    number,
    table_of,
)
from strongticket.report.certificates import certificate_view, shown
from strongticket.report.find import ComparedModel, Result
from strongticket.report.origin import origin
from strongticket.report.records import Collected, Compared, Pretrained, typed


def collected_section(result: Result) -> Section:
    """Show the comparisons of one model, as `strongticket.bench.pretrained` collects them."""
    runs = typed(Collected, result.content)
    return _section(runs.model, runs.runs, origin([result.path], result.made))


def single_section(models: Sequence[ComparedModel]) -> Section:
    """Show comparisons from single files."""
    where = origin([model.path for model in models], [model.made for model in models])
    return _section("A pretrained model", [model.content for model in models], where)


def _section(model: str, runs: Sequence[Pretrained], where: Mapping[str, str]) -> Section:
    runs = sorted(runs, key=lambda run: (run.what, run.items))
    last = runs[-1].compare
    name, _, package = model.partition(" (")
    source = f"The weights are those of {package.rstrip(')')}. " if package else ""
    chart = Chart(
        title=_message(name, runs),
        caption=f"{last.texts:,} texts, {last.tokens:,} tokens. Parts: the largest error of each on its inputs in the "
        "original, against its certificate, which holds for all inputs up to a norm.",
        views=(*_views(runs), _part_view(runs)),
        tables=(_table(runs),),
    )
    best = min(runs, key=lambda run: run.compare.largest_difference)
    return Section(
        anchor="pretrained",
        name="Pretrained",
        title=f"{name} inside a random network",
        lead=f"{source}Every replaced matrix is a seed and a mask; nothing was trained. How close do the ticket’s "
        "outputs come to the original’s as each entry has more random products to choose from?",
        finding=f"{best.what}, {best.items} items per entry: {_closeness(best.compare)}",
        blocks=(chart,),
        origin=where,
    )


def _message(name: str, runs: Sequence[Pretrained]) -> str:
    """Say whether more items always bring the ticket closer."""
    closer = all(
        more.compare.largest_difference < few.compare.largest_difference
        for few, more in pairwise(runs)
        if few.what == more.what
    )
    if len({run.items for run in runs}) > 1 and closer:
        return f"More items per entry bring the ticket closer to {name}"
    return f"{name} and its tickets on the same text"


# Values against items, by the view's name and axis and the line's name and dash; shown if every run has them.
_VIEWS: dict[tuple[str, str], dict[tuple[str, Dash], Callable[[Pretrained], float | None]]] = {
    ("Similarity", "1 − cosine similarity"): {
        ("mean", "solid"): lambda run: 1 - run.compare.cosine["mean"] if run.compare.cosine else None,
        ("worst text", "dashed"): lambda run: 1 - run.compare.cosine["min"] if run.compare.cosine else None,
    },
    ("Outputs", "difference of an output"): {
        ("largest difference", "solid"): lambda run: run.compare.largest_difference,
        ("what float32 alone changes", "dotted"): lambda run: run.compare.float32_rounding,
    },
    ("Entries", "error of a merged entry"): {
        ("worst entry", "solid"): lambda run: run.ticket.worst_entry,
        ("worst within reach", "dashed"): lambda run: run.ticket.worst_reached,
    },
}


def _views(runs: Sequence[Pretrained]) -> Iterator[View]:
    """Draw values against items, one colour per kind of ticket."""
    kinds = [*zip(dict.fromkeys(run.what for run in runs), SERIES, strict=False)]
    for (name, y), lines in _VIEWS.items():
        series = []
        for (what, colour), ((label, dash), value) in product(kinds, lines.items()):
            values = [(float(run.items), value(run)) for run in runs if run.what == what]
            points = [(items, max(found, SMALLEST)) for items, found in values if found is not None]
            series += [Series(name=f"{what}: {label}", points=points, colour=colour, dash=dash)]
        if all(value(run) is not None for run in runs for value in lines.values()):
            says = changes(y, series[0].points, "items")
            yield View(name=name, says=says, x="items per entry", y=y, series=series, y_scales=("log",))


def _part_view(runs: Sequence[Pretrained]) -> View:
    series = [
        Series(
            name=f"{run.what}, {run.items} items",
            points=[(shown(max(part.certified, SMALLEST)), max(part.error, SMALLEST)) for part in run.compare.parts],
            colour=colour,
            line=False,
            notes=[part.part for part in run.compare.parts],
        )
        for run, colour in zip(runs, SERIES, strict=False)
    ]
    kept = all(part.error <= part.certified for run in runs for part in run.compare.parts)
    view = certificate_view("Parts", series, "certified error of a part", "largest error")
    return replace(view, says="No part exceeds its certificate" if kept else "Some parts exceed their certificates")


def _table(runs: Sequence[Pretrained]) -> Table:
    return table_of(
        "By the number of items",
        runs,
        {
            "what": lambda run: run.what,
            "items": lambda run: str(run.items),
            "closeness": lambda run: _closeness(run.compare),
            "largest difference": lambda run: number(run.compare.largest_difference),
            "float32 rounding": lambda run: number(run.compare.float32_rounding),
            "out of reach": lambda run: _or_dash(run.ticket.unreachable, "{:,}"),
            "ticket": lambda run: _or_dash(run.ticket.file_bytes and run.ticket.file_bytes / 1e6, "{:.1f} MB"),
            "least certificate / error": lambda run: number(
                min((part.certified / part.error for part in run.compare.parts if part.error), default=None)
            ),
        },
    )


def _or_dash(value: float | None, how: str) -> str:
    return "–" if value is None else how.format(value)


def _closeness(compare: Compared) -> str:
    if compare.cosine is not None:
        return "1 − cosine similarity: " + ", worst ".join(
            number(1 - compare.cosine[which]) for which in ("mean", "min")
        )
    if compare.loss is None:
        raise KeyError("loss")
    losses = f"loss {compare.loss['ticket']:.4f} (original {compare.loss['original']:.4f})"
    return f"{losses}, KL divergence {number(compare.kl)}"
