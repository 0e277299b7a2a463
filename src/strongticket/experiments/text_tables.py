"""Figures 7 and 8 as tables for the terminal."""

from collections.abc import Sequence

from rich.table import Table

from strongticket.errors import printable
from strongticket.experiments.paired import paired_difference, spread
from strongticket.experiments.text_figure import caption
from strongticket.experiments.text_rows import BEST, FINAL, bases_by_setting, losses_by_setting
from strongticket.files import Json

_WORDS = ("model", "what", "embeddings", "measure", "variant", "against")  # columns; the others are of numbers


def loss_table(result: Json) -> Table:
    """Show Figure 7's losses."""
    also = _other_texts(result)
    measures = _measures(result["points"])
    columns = ("model", "what", "embeddings", "nonzero", "without\nembeddings", "seeds", *measures.values())
    chosen = "trained models: the best of all learning rates and warm-ups tried"
    table = _table("Figure 7", (*columns, *map(_best_on, also)), f"{caption(result)}; {chosen}")
    for point in result["points"]:
        scale = "trained model" if point["kind"] == "dense" else f"scale {point['scale']:g}"
        table.add_row(
            point["size"],
            scale,
            point["embeddings"],
            *(f"{point['nonzero'][counted] / 1e6:.2f}M" for counted in ("all", "without_embeddings")),
            str(len(point["seeds"])),
            *(_spread(point[measure]) for measure in measures),
            *(_spread(point["also"].get(name)) for name in also),
        )
    return table


def _measures(points: Sequence[Json]) -> dict[str, str]:
    """Which losses to show, and how they are called: once where the best is the final one everywhere."""
    if all(point[BEST]["values"] == point[FINAL]["values"] for point in points):
        return {BEST: "best and\nfinal loss"}
    return {BEST: "best loss", FINAL: "final loss"}


def _other_texts(result: Json) -> list[str]:
    return sorted({name for point in result["points"] for name in point["also"]})


def _best_on(name: str) -> str:
    return f"best, on\n{printable(name)}"


def effect_table(result: Json) -> Table:
    """Show what the scale changes, seed by seed."""
    columns = ("model", "embeddings", "measure", "seeds", "scaled minus\nunscaled", "standard\nerror", "95 % interval")
    table = _table("The scale's effect, paired by seed", columns, "negative: the scale lowers the loss")
    shown = _measures(result["points"])
    for effect in result["effects"]:
        if (measure := effect["measure"]) in shown:
            table.add_row(effect["size"], effect["embeddings"], measure.split("_")[0], *_difference(effect))
    return table


def gap_table(result: Json) -> Table:
    """Show how far tickets are from trained models."""
    columns = (
        "model",
        "embeddings",
        "scale",
        "seeds",
        "ticket minus\ntrained model",
        "standard\nerror",
        "95 % interval",
    )
    table = _table("Tickets and trained models, paired by seed", columns, "best losses; positive: the ticket is worse")
    for gap in result["gaps"]:
        scale = "1" if gap["kind"] == "unscaled" else "n_K^(1/4)"
        table.add_row(gap["size"], gap["embeddings"], scale, *_difference(gap))
    return table


def scale_table(result: Json, curve: Json, title: str) -> Table:
    """Show the losses of one model at each scale."""
    measures = _measures(curve["points"])
    columns = (
        "scale",
        *measures.values(),
        "seeds",
        "best minus\nthat of scale 1",
        "standard\nerror",
        "95 % interval",
    )
    also = _other_texts(curve)
    uneven = len({len(point["seeds"]) for point in curve["points"]}) > 1
    pairs = "; differences are of the seeds that both scales have" if uneven else ""
    table = _table(title, (*columns, *map(_best_on, also)), f"{caption(result)}{pairs}")
    for point in curve["points"]:
        difference = point[f"{BEST}_difference"]
        losses = (_spread(point[measure]) for measure in measures)
        cells = _difference(difference) if difference else (str(len(point["seeds"])), "", "", "")
        table.add_row(f"{point['scale']:g}", *losses, *cells, *(_spread(point["also"].get(name)) for name in also))
    return table


def spread_table(result: Json) -> Table:
    """Show how much seeds differ at each length."""
    columns = (
        "model",
        "tokens",
        "steps",
        "scale: final loss",
        "seeds",
        "difference",
        "standard\nerror",
        "95 % interval",
    )
    below = f"seeds needed: to find {result['effect']} nats four times in five, by a paired t-test at the 5 % level"
    table = _table("Spread over seeds", (*columns, "seeds\nneeded"), f"{caption(result)}; {below}")
    for length in result["lengths"]:
        losses = "\n".join(f"{line['scale']:g}: {_spread(line)}" for line in length["losses"])
        difference = length["difference"]
        cells = _difference(difference) if difference else (str(length["losses"][0]["n"]), "", "", "")
        needed = "-" if length["seeds_needed"] is None else str(length["seeds_needed"])
        table.add_row(length["size"], f"{length['tokens'] / 1e6:.1f}M", str(length["steps"]), losses, *cells, needed)
    return table


def variant_table(result: Json) -> Table:
    """Show what each change of a setting does."""
    columns = ("model", "variant", "seeds", "final loss", "change", "against")
    pairs = "changes: of the seeds that both have, in brackets how many if not all"
    below = f"{caption(result)}; {pairs}; where nothing else is said: {result['usual']}"
    table = _table("What the settings do", columns, below)
    losses = losses_by_setting(result["variants"])
    for (size, variant), base in bases_by_setting(result["variants"]).items():
        own, other = losses[size, variant], losses.get((size, str(base)), {})
        found = _spread(spread([*own.values()]))
        table.add_row(size, variant, str(len(own)), found, *_change(paired_difference(other, own), len(own), base))
    return table


def _change(pair: Json | None, seeds: int, base: str | None) -> tuple[str, str]:
    if pair is None or base is None:
        return "-", "-"
    return f"{pair['mean']:+.3f}" + (f" ({pair['n']})" if pair["n"] < seeds else ""), base


def _difference(found: Json) -> tuple[str, str, str, str]:
    error, interval = found["standard_error"], found["interval"]
    return (
        str(found["n"]),
        f"{found['mean']:+.3f}",
        "-" if error is None else f"{error:.3f}",
        "-" if interval is None else f"{interval[0]:+.3f} to {interval[1]:+.3f}",
    )


def _spread(found: Json) -> str:
    if found is None:
        return "-"
    return f"{found['mean']:.3f}" + ("" if found["std"] is None else f" ± {found['std']:.3f}")


def _table(title: str, columns: tuple[str, ...], below: str) -> Table:
    table = Table(title=title, caption=below, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column in _WORDS else "right")
    return table
