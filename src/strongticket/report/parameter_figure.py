"""Figure 7: tickets found by search on text, with and without Q/K scaling, beside trained models."""

from strongticket.charts.parts import Chart, Colour, Comparison, Row, Section, Series, Table, View, number
from strongticket.experiments.text_rows import BEST, FINAL, LABELS
from strongticket.files import Json
from strongticket.report.find import Result
from strongticket.report.origin import origin_of
from strongticket.report.text_words import (
    LOSS,
    caution,
    difference,
    interval,
    loss,
    losses_on,
    million,
    other_texts,
    paired_mark,
    seeds,
    setting,
)

_COLOURS: dict[str, Colour] = {"unscaled": "miss", "scaled": "median", "dense": "mean"}
_NUMBERS = ("seeds", "mean", "standard error", "95 % interval")
_NOT_JOINED = "Points are joined only where all models saw the same amount of text."
_NO_PAIR = " No ticket was searched both with and without that scale yet, so what it changes cannot be read off here."


def parameter_figure(result: Result) -> Section:
    """Figure 7: loss against nonzero parameters."""
    content = result.content
    points = content["points"]
    chart = Chart(
        title="Loss against nonzero parameters",
        caption=f"{setting(content)}; {seeds(len(point['seeds']) for point in points)}. {_several(points)}"
        + (f"Every model saw {_text_seen(points[0])}." if _comparable(points) else _NOT_JOINED),
        views=(
            _parameter_view(points, "all", "All parameters"),
            _parameter_view(points, "without_embeddings", "Without embeddings"),
        ),
        tables=(_loss_table(points),),
    )
    effects = [effect for effect in content["effects"] if effect["measure"] == BEST]
    gaps = content.get("gaps", [])
    return Section(
        anchor="fig7",
        name="Figure 7",
        title="Figure 7: loss against nonzero parameters",
        lead="GPT-2 models on text: tickets found by edge-popup, no weight trained unless it says embeddings trained, "
        "beside models trained in full. The paper draws query and key weights larger, by the fourth root of a head’s "
        f"width, as its theory asks, and reports better tickets.{'' if effects else _NO_PAIR}",
        finding=_parameter_finding(points, effects),
        blocks=(chart, *([_effects(effects)] if effects else []), *([_gaps(gaps)] if gaps else [])),
        origin=origin_of(result),
    )


def _parameter_finding(points: list[Json], effects: list[Json]) -> str:
    if effects:
        found = [
            f"{difference(effect)} ({effect['size']}, embeddings {effect['embeddings']}, "
            f"{'one seed' if effect['interval'] is None else f'95 % {interval(effect)}'})"
            for effect in effects
        ]
        return f"Q/K scaling changes the loss by {', '.join(found)}"
    for size in dict.fromkeys(point["size"] for point in points):
        own = [point for point in points if point["size"] == size]
        tickets = [float(point[BEST]["mean"]) for point in own if point["kind"] != "dense"]
        trained = [float(point[BEST]["mean"]) for point in own if point["kind"] == "dense"]
        if tickets and trained:
            return f"{size}: loss {min(tickets):.3f} as a ticket, {min(trained):.3f} trained"
    return ""


def _parameter_view(points: list[Json], counted: str, name: str) -> View:
    series = []
    kinds = [point["kind"] for point in points]
    labelled = "dense" if "dense" in kinds else kinds[0]  # one name for each model is enough, and leaves room
    for kind, embeddings in dict.fromkeys((point["kind"], point["embeddings"]) for point in points):
        chosen = [point for point in points if (point["kind"], point["embeddings"]) == (kind, embeddings)]
        chosen.sort(key=lambda point: float(point["nonzero"][counted]))
        losses = [point[BEST] for point in chosen]
        series.append(
            Series(
                name=LABELS[kind] + ("" if kind == "dense" else f", embeddings {embeddings}"),
                points=[(p["nonzero"][counted], found["mean"]) for p, found in zip(chosen, losses, strict=True)],
                low=[found["mean"] - (found["std"] or 0) for found in losses],
                high=[found["mean"] + (found["std"] or 0) for found in losses],
                colour=_COLOURS[kind],
                dash="dashed" if embeddings == "masked" else "solid",
                line=_comparable(chosen),
                notes=[f"{point['size']}, {_text_seen(point)}" for point in chosen],
                labels=[_label(point, points) for point in chosen] if kind == labelled else (),
            )
        )
    return View(
        name=name,
        x="nonzero parameters",
        y=LOSS,
        series=series,
        x_scale="log",
        y_scales=("linear", "log"),
        apart=True,
    )


def _several(points: list[Json]) -> str:
    return "Mean and standard deviation over seeds. " if any(len(point["seeds"]) > 1 for point in points) else ""


def _label(point: Json, points: list[Json]) -> str:
    """Name a model, with the text it saw where models differ in that."""
    return str(point["size"]) if _comparable(points) else f"{point['size']}, {_text_seen(point)}"


def _comparable(points: list[Json]) -> bool:
    """A line says that larger is better or worse, which nobody can say of models that saw different amounts of text."""
    return len({point.get("tokens") for point in points}) == 1


def _text_seen(point: Json) -> str:
    return f"{million(point['tokens'])} tokens" if point.get("tokens") else "text seen not recorded"


def _loss_table(points: list[Json]) -> Table:
    also = other_texts(points)
    rows = [
        (
            str(point["size"]),
            LABELS[point["kind"]],
            loss(point[BEST]),
            loss(point[FINAL]),
            *losses_on(also, point),
            str(len(point["seeds"])),
            f"{point['nonzero']['all']:,}",
            f"{point['nonzero']['without_embeddings']:,}",
            number(point.get("lr")),
            _text_seen(point),
            str(point["embeddings"]),
        )
        for point in points
    ]
    losses = ("best loss", "final loss", *(f"best, on {name}" for name in also))
    columns = (
        "model",
        "what",
        *losses,
        "seeds",
        "nonzero",
        "without embeddings",
        "learning rate",
        "text seen",
        "embeddings",
    )
    return Table(caption="Losses over seeds", columns=columns, rows=rows, words=2, remarks=2)


def _effects(effects: list[Json]) -> Comparison:
    rows = [
        Row(
            words=(str(effect["size"]), str(effect["embeddings"])),
            marks=(paired_mark(effect, "median"),),
            numbers=_numbers(effect),
        )
        for effect in effects
    ]
    return Comparison(
        title="What the scale of Q and K changes, seed by seed",
        caption=f"Left of zero: the scale lowers the loss. {caution([effect['n'] for effect in effects])}",
        words=("model", "embeddings"),
        axis="scaled − unscaled, nats a token",
        numbers=_NUMBERS,
        rows=rows,
        zero=True,
    )


def _gaps(gaps: list[Json]) -> Comparison:
    rows = [
        Row(
            words=(str(gap["size"]), str(gap["embeddings"]), "1" if gap["kind"] == "unscaled" else "n_K^(1/4)"),
            marks=(paired_mark(gap, _COLOURS[gap["kind"]]),),
            numbers=_numbers(gap),
        )
        for gap in gaps
    ]
    return Comparison(
        title="How far tickets are above trained models, seed by seed",
        caption="At zero a ticket is as good as the trained model that saw the same text in the same order. "
        + caution([gap["n"] for gap in gaps]),
        words=("model", "embeddings", "scale"),
        axis="ticket − trained model, nats a token",
        numbers=_NUMBERS,
        rows=rows,
        zero=True,
    )


def _numbers(pair: Json) -> tuple[str, str, str, str]:
    return str(pair["n"]), difference(pair), number(pair["standard_error"]), interval(pair)
