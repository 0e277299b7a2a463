"""Pretrained models as tickets: how close outputs come as each entry gets more random products to choose from."""

from collections.abc import Mapping, Sequence

from strongticket.container import Json
from strongticket.report.find import Result
from strongticket.report.origin import date_of, machine_of
from strongticket.report.parts import SERIES, Chart, Section, Series, Table, View, above_zero, number


def pretrained_section(results: Sequence[Result]) -> Section:
    """Put comparisons of one or several tickets with their model into one section."""
    files = sorted((result for result in results), key=lambda found: (found.content["what"], found.content["items"]))
    contents = [file.content for file in files]
    kinds = dict.fromkeys(content["what"] for content in contents)
    views = [_difference_view({kind: [c for c in contents if c["what"] == kind] for kind in kinds})]
    views.append(_part_view(contents))
    chart = Chart(
        title="A pretrained model and its tickets on the same text",
        caption=f"{contents[-1]['compare']['texts']:,} texts, {contents[-1]['compare']['tokens']:,} tokens. Dotted: "
        "what float32 arithmetic alone changes.",
        views=views,
        tables=(_table(contents),),
    )
    best = contents[-1]["compare"]
    run: Mapping[str, Json] = files[-1].run if isinstance(files[-1].run, Mapping) else {}
    return Section(
        anchor="pretrained",
        name="Pretrained",
        title="A pretrained model inside a random one",
        lead="Every matrix that became random is a seed and a mask; nothing was trained. With enough random products "
        "for each entry the ticket’s outputs are those of the original as far as float32 can tell.",
        finding=f"{contents[-1]['items']} items: {_closeness(best)}",
        blocks=(chart,),
        origin={
            "Data": ", ".join(str(file.path) for file in files),
            "Command": str(run.get("command", "strongticket construct, then strongticket compare")),
            "Machine": machine_of(run),
            "Date": date_of(run),
        },
    )


def _difference_view(groups: Mapping[str, list[Json]]) -> View:
    series = []
    for (kind, contents), colour in zip(groups.items(), SERIES, strict=False):
        for key, name, dash in (
            ("largest_difference", f"{kind}: largest difference of an output", "solid"),
            ("float32_rounding", f"{kind}: rounding of float32", "dotted"),
        ):
            values = above_zero(content["compare"][key] for content in contents)
            points = [(float(c["items"]), value) for c, value in zip(contents, values, strict=True)]
            marks = dash == "solid"
            series.append(
                Series(name=name, points=points, colour=colour, dash="solid" if marks else "dotted", marks=marks)
            )
    return View(name="Outputs", x="items an entry", y="difference of an output", series=series)


def _part_view(contents: list[Json]) -> View:
    series = [
        Series(
            name=f"{content['what']}, {content['items']} items",
            points=list(
                zip(
                    above_zero(part["certified"] for part in content["compare"]["parts"]),
                    above_zero(part["error"] for part in content["compare"]["parts"]),
                    strict=True,
                )
            ),
            colour=colour,
            line=False,
        )
        for content, colour in zip(contents, SERIES, strict=False)
    ]
    return View(
        name="Parts against certificates",
        x="certified error of a part",
        y="largest error measured",
        series=series,
        x_scale="log",
        y_scales=("log",),
        diagonal="error = certificate",
    )


def _table(contents: list[Json]) -> Table:
    rows = []
    for content in contents:
        compare = content["compare"]
        rows.append(
            (
                str(content["what"]),
                str(content["items"]),
                _closeness(compare),
                number(compare["largest_difference"]),
                number(compare["float32_rounding"]),
                number(
                    max(
                        (part["error"] / part["certified"] for part in compare["parts"] if part["certified"]), default=0
                    )
                ),
            )
        )
    columns = ("what", "items", "closeness", "largest difference", "float32 rounding", "worst error / certificate")
    return Table(caption="By the number of items", columns=columns, rows=rows)


def _closeness(compare: Json) -> str:
    if "cosine" in compare:
        return f"cosine similarity {compare['cosine']['mean']:.7f}, at least {compare['cosine']['min']:.7f}"
    loss = compare["loss"]
    return f"loss {loss['ticket']:.4f} (original {loss['original']:.4f}), KL divergence {number(compare['kl'])}"
