"""Settings compared on text, line by line: the spread over seeds, what settings do, ways to draw the weights."""

from collections.abc import Sequence
from dataclasses import replace

from strongticket.charts.parts import Colour, Comparison, Mark, Row, Section, Table, number
from strongticket.experiments.paired import paired_difference, spread
from strongticket.experiments.text_rows import BEST, bases_by_setting, losses_by_setting, mean_of, on_common_seeds
from strongticket.files import Json
from strongticket.report.find import Result
from strongticket.report.origin import origin_of
from strongticket.report.text_words import caution, difference, interval, loss, million, paired_mark, seeds, setting

_FINAL_LOSS = "final validation loss, nats a token"


def spread_figure(result: Result) -> Section:
    """The spread over seeds: how many runs it takes to see an effect."""
    content = result.content
    lengths = content["lengths"]
    rows = [
        Row(
            words=(*_length(length), f"{float(losses['scale']):.3g}"),
            marks=(_losses(losses, "mean"),),
            numbers=(str(losses["n"]), loss(losses)),
        )
        for length in lengths
        for losses in length["losses"]
    ]
    shown = Comparison(
        title="Final losses, seed by seed",
        caption="Small dots: single seeds; large: their mean. The numbers are mean ± standard deviation.",
        words=("model", "tokens", "steps", "scale"),
        axis=_FINAL_LOSS,
        numbers=("seeds", "final loss"),
        rows=rows,
    )
    needed = [length["seeds_needed"] for length in lengths if length["seeds_needed"] is not None]
    return Section(
        anchor="spread",
        name="Spread over seeds",
        title="How much seeds differ",
        lead=f"{setting(content)}. Before an effect of the scale can be claimed, the spread over seeds says how many "
        "runs it takes to see one.",
        finding=_pairs_needed(needed, content["effect"]) if needed else "",
        blocks=(shown, _paired_table(lengths, content["effect"])),
        origin=origin_of(result),
    )


def _length(length: Json) -> tuple[str, str, str]:
    return str(length["size"]), million(length["tokens"]), f"{int(length['steps']):,}"


def _pairs_needed(needed: Sequence[int], effect: float) -> str:
    few, many = min(needed), max(needed)
    pairs = str(many) if few == many else f"{few} to {many}"
    lengths = "" if few == many else ", depending on steps and batch"
    return f"an effect of {number(effect)} nats takes {pairs} pairs of runs to see{lengths}"


def _paired_table(lengths: Sequence[Json], effect: float) -> Table:
    rows = [
        (
            *_length(length),
            difference(length["difference"]),
            interval(length["difference"]),
            "–" if length["seeds_needed"] is None else str(length["seeds_needed"]),
        )
        for length in lengths
    ]
    caption = f"Scaled − unscaled, seed by seed; seeds needed: to find {number(effect)} nats four times in five"
    columns = ("model", "tokens", "steps", "mean difference", "95 % interval", "seeds needed")
    return Table(caption=caption, columns=columns, rows=rows)


def ablation_figure(result: Result) -> Section:
    """What the settings do, each beside what it is a change of."""
    content = result.content
    by_setting = losses_by_setting(content["variants"])
    bases = bases_by_setting(content["variants"])
    order = sorted(by_setting, key=lambda key: mean_of(by_setting[key]))
    models = list(dict.fromkeys(size for size, _ in order))
    words = ("setting", "model") if len(models) > 1 else ("setting",)
    rows, compared = [], list[Row]()
    for size, variant in order:
        own = by_setting[size, variant]
        trained = variant.startswith("trained model")
        found = spread(list(own.values()))
        colour: Colour = "mean" if trained else "median"
        rows.append(
            Row(
                words=(variant, size)[: len(words)],
                marks=(_losses(found, colour),),
                numbers=(str(found["n"]), loss(found)),
            )
        )
        base = bases[size, variant]
        pair = paired_difference(by_setting.get((size, base), {}), own) if base else None
        if base and pair:
            compared.append(
                Row(
                    words=(_change(variant, base), base, size)[: len(words) + 1],
                    marks=(paired_mark(pair, colour),),
                    numbers=(str(pair["n"]), difference(pair), interval(pair)),
                )
            )
    counts = [len(found) for found in by_setting.values()]
    losses = Comparison(
        title="Final losses, the lowest first",
        caption="Small dots: single seeds; large: their mean. The numbers are mean ± standard deviation.",
        words=words,
        axis=_FINAL_LOSS,
        numbers=("seeds", "final loss"),
        rows=rows,
        key=(("median", "tickets"), ("mean", "trained models")),
    )
    return Section(
        anchor="ablation",
        name="Ablation",
        title="What the settings do",
        lead=f"{setting(content)}: {len(by_setting)} settings of {' and '.join(models)}, {seeds(counts)}. "
        + (f"Where nothing else is said: {content['usual']}. " if "usual" in content else "")
        + caution(counts),
        finding=_lowest(rows[0]) if rows else "",
        blocks=(losses, *([_against_bases(sorted(compared, key=_change_of), words[1:])] if compared else [])),
        origin=origin_of(result),
    )


def _lowest_of_init(line: Json) -> str:
    losses = on_common_seeds(
        {point["scale"]: dict(zip(point["seeds"], point[BEST]["values"], strict=True)) for point in line["points"]}
    )
    if not all(losses.values()):
        return f"{line['init']}: no seed at all scales"
    scale = min(losses, key=lambda scale: mean_of(losses[scale]))
    once = " (one seed)" if len(losses[scale]) == 1 else ""
    return f"{line['init']} {mean_of(losses[scale]):.3f} at scale {scale:g}{once}"


def _lowest(row: Row) -> str:
    """Name the first setting, after its model if that is a column."""
    once = " (one seed)" if len(row.marks[0].values) == 1 else ""
    return f"lowest final loss: {', '.join(reversed(row.words))}: {row.marks[0].mean:.3f}{once}"


def _change_of(row: Row) -> float:
    return row.marks[0].mean


def _change(variant: str, base: str) -> str:
    """Give what a setting adds to its base; a ticket's own settings name it no more than that."""
    return variant.removeprefix(base).removeprefix(", ")


def _against_bases(rows: Sequence[Row], more: tuple[str, ...]) -> Comparison:
    sure = any(mark.interval for row in rows for mark in row.marks)
    return Comparison(
        title="Each change, seed by seed",
        caption="Left of zero: the change lowers the loss. Settings whose base was not run are not here.",
        words=("change", "of", *more),
        axis="change, nats",
        numbers=("seeds", "mean", "95 % interval") if sure else ("seeds", "mean"),
        rows=rows if sure else [replace(row, numbers=row.numbers[:2]) for row in rows],
        zero=True,
    )


def _losses(found: Json, colour: Colour) -> Mark:
    return Mark(mean=found["mean"], values=found["values"], colour=colour)


def init_figure(result: Result) -> Section:
    """The scale of Q and K, for weights drawn in several ways."""
    content = result.content
    lines = content["inits"]
    rows, compared, counts = [], [], []
    for line in lines:
        for point in line["points"]:
            words = (str(line["init"]), str(line["size"]), f"{point['scale']:g}")
            colour: Colour = "miss" if point["scale"] == 1 else "median"
            numbers = (f"{point['deviation']:.3g}", str(len(point["seeds"])), loss(point[BEST]))
            rows.append(Row(words=words, marks=(_losses(point[BEST], colour),), numbers=numbers))
            if pair := point[f"{BEST}_difference"]:
                counts.append(int(pair["n"]))
                numbers = (str(pair["n"]), difference(pair), interval(pair))
                compared.append(Row(words=words, marks=(paired_mark(pair, "median"),), numbers=numbers))
    losses = Comparison(
        title="Best losses",
        caption="Size: the standard deviation that the weights of Q and K are drawn with, the scale included. Small "
        "dots: single seeds; large: their mean. The loss is mean ± standard deviation.",
        words=("weights", "model", "scale"),
        axis="best validation loss, nats a token",
        numbers=("size", "seeds", "loss"),
        rows=rows,
        key=(("miss", "scale 1"), ("median", "another scale")),
    )
    differences = Comparison(
        title="Scaled minus unscaled, seed by seed",
        caption=f"Left of zero: the scale lowers the loss. {caution(counts)}",
        words=("weights", "model", "scale"),
        axis="difference of the best loss",
        numbers=("seeds", "mean", "95 % interval"),
        rows=compared,
        zero=True,
    )
    return Section(
        anchor="inits",
        name="Ways to draw",
        title="The scale of Q and K, however the weights are drawn",
        lead=f"{setting(content)}, {seeds(counts)}. Does the theory’s scale help whatever distribution the random "
        "weights come from, or is it the size of the scaled weights that counts?",
        finding=f"lowest loss: {', '.join(map(_lowest_of_init, lines))}",
        blocks=(losses, differences),
        origin=origin_of(result),
    )
