"""Pretrained models as tickets: how close outputs come as each entry gets more random products to choose from."""

from collections.abc import Mapping, Sequence

from strongticket.charts.parts import SERIES, Chart, Dash, Section, Series, Table, View, above_zero, number
from strongticket.files import Json
from strongticket.report.find import Result
from strongticket.report.origin import date_of, gather, machine_of


def collected_section(result: Result) -> Section:
    """Show a result that holds the comparisons of one model, as `strongticket.bench.pretrained` collects them."""
    how = _how(result)
    each = [run for run in how.get("runs", ()) if isinstance(run, Mapping)]
    return _section(str(result.content["model"]), result.content["runs"], _origin([result], [how, *each]))


def single_section(results: Sequence[Result]) -> Section:
    """Show comparisons that lie about as single files."""
    origin = _origin(results, [_how(result) for result in results])
    return _section("A pretrained model", [result.content for result in results], origin)


def _how(result: Result) -> Mapping[str, Json]:
    return result.run if isinstance(result.run, Mapping) else {}


def _origin(results: Sequence[Result], hows: Sequence[Mapping[str, Json]]) -> dict[str, str]:
    return gather(
        {
            "Data": [str(result.path) for result in results],
            "Command": [str(how.get("command") or "") for how in hows],
            "Machine": map(machine_of, hows),
            "Date": map(date_of, hows),
            "Commit": [str(how.get("commit") or "") for how in hows],
        }
    )


def _section(model: str, runs: Sequence[Json], origin: Mapping[str, str]) -> Section:
    runs = sorted(runs, key=lambda run: (str(run["what"]), int(run["items"])))
    last = runs[-1]["compare"]
    views = [_output_view(runs), _part_view(runs)]
    if all("cosine" in run["compare"] for run in runs):
        views.insert(0, _similarity_view(runs))
    if all("worst_entry" in run.get("ticket", {}) for run in runs):
        views.insert(-1, _entry_view(runs))
    chart = Chart(
        title=f"{model} and its tickets on the same text",
        caption=f"{last['texts']:,} texts, {last['tokens']:,} tokens. Parts: each on the inputs it has in the "
        "original, its largest error against its certificate, which holds for every input of the norm.",
        views=views,
        tables=(_table(runs),),
    )
    best = min(runs, key=lambda run: float(run["compare"]["largest_difference"]))
    return Section(
        anchor="pretrained",
        name="Pretrained",
        title=f"{model} inside a random network",
        lead="Every matrix that became random is a seed and a mask; nothing was trained. How close do the ticket’s "
        "outputs come to the original’s as each entry has more random products to choose from?",
        finding=f"{best['what']}, {best['items']} items an entry: {_closeness(best['compare'])}",
        blocks=(chart,),
        origin=origin,
    )


def _lines(
    runs: Sequence[Json], lines: Sequence[tuple[str, str, Dash]], values: Mapping[str, list[float]]
) -> list[Series]:
    """Draw some values against items, one colour for each kind of ticket."""
    series = []
    for what, colour in zip(dict.fromkeys(run["what"] for run in runs), SERIES, strict=False):
        places = [place for place, run in enumerate(runs) if run["what"] == what]
        for key, label, dash in lines:
            points = [(float(runs[place]["items"]), values[key][place]) for place in places]
            series.append(Series(name=f"{what}: {label}", points=points, colour=colour, dash=dash))
    return series


def _similarity_view(runs: Sequence[Json]) -> View:
    values = {key: above_zero(1 - run["compare"]["cosine"][key] for run in runs) for key in ("mean", "min")}
    lines: list[tuple[str, str, Dash]] = [("mean", "mean", "solid"), ("min", "worst text", "dashed")]
    return View(name="Similarity", x="items an entry", y="1 − cosine similarity", series=_lines(runs, lines, values))


def _output_view(runs: Sequence[Json]) -> View:
    keys = ("largest_difference", "float32_rounding")
    values = {key: above_zero(run["compare"][key] for run in runs) for key in keys}
    lines: list[tuple[str, str, Dash]] = [
        ("largest_difference", "largest difference", "solid"),
        ("float32_rounding", "what float32 alone changes", "dotted"),
    ]
    return View(name="Outputs", x="items an entry", y="difference of an output", series=_lines(runs, lines, values))


def _entry_view(runs: Sequence[Json]) -> View:
    values = {key: above_zero(run["ticket"][key] for run in runs) for key in ("worst_entry", "worst_reached")}
    lines: list[tuple[str, str, Dash]] = [
        ("worst_entry", "worst entry", "solid"),
        ("worst_reached", "worst within reach", "dashed"),
    ]
    return View(name="Entries", x="items an entry", y="error of a merged entry", series=_lines(runs, lines, values))


def _part_view(runs: Sequence[Json]) -> View:
    series = []
    for run, colour in zip(runs, SERIES, strict=False):
        parts = run["compare"]["parts"]
        certified, errors = (above_zero(part[key] for part in parts) for key in ("certified", "error"))
        series.append(
            Series(
                name=f"{run['what']}, {run['items']} items",
                points=list(zip(certified, errors, strict=True)),
                colour=colour,
                line=False,
                notes=[str(part["part"]) for part in parts],
            )
        )
    return View(
        name="Parts",
        x="certified error of a part",
        y="largest error measured",
        series=series,
        x_scale="log",
        y_scales=("log",),
        diagonal="above this line: certificate broken",
    )


def _table(runs: Sequence[Json]) -> Table:
    rows = []
    for run in runs:
        compare, ticket = run["compare"], run.get("ticket", {})
        ratios = [part["certified"] / part["error"] for part in compare["parts"] if part["error"]]
        rows.append(
            (
                str(run["what"]),
                str(run["items"]),
                _closeness(compare),
                number(compare["largest_difference"]),
                number(compare["float32_rounding"]),
                f"{ticket['unreachable']:,}" if "unreachable" in ticket else "–",
                f"{ticket['file_bytes'] / 1e6:.1f} MB" if "file_bytes" in ticket else "–",
                number(min(ratios, default=None)),
            )
        )
    columns = ("what", "items", "closeness", "largest difference", "float32 rounding", "out of reach", "ticket")
    return Table(caption="By the number of items", columns=(*columns, "least certificate / error"), rows=rows)


def _closeness(compare: Json) -> str:
    if "cosine" in compare:
        return f"cosine similarity {compare['cosine']['mean']:.7f}, worst {compare['cosine']['min']:.7f}"
    loss = compare["loss"]
    return f"loss {loss['ticket']:.4f} (original {loss['original']:.4f}), KL divergence {number(compare['kl'])}"
