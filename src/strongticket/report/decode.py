"""Rows of `bench decode`: speed and memory of GPT-2 from bits and in torch."""

from collections.abc import Sequence
from pathlib import Path

from strongticket.charts.parts import SERIES, Chart, Section, Series, Table, View, number, sentence, share, table_of
from strongticket.report.origin import origin
from strongticket.report.records import Decoding, Timed

_NAMES = {
    "bits": "from bits",
    "mask": "from bits, signs from the seed",
    "float32": "float32",
    "bfloat16": "bfloat16",
    "int8": "int8, dynamic",
    "compiled": "torch.compile",
}
_ENGINES = [*_NAMES]

Place = tuple[str, int]  # device and threads


def decode_section(path: Path, rows: Sequence[Timed[Decoding]]) -> Section:
    """Show tokens per second against the number of weights, one view per device and number of threads."""
    # The last row of each engine, model and place counts.
    latest = list({(_place(timed), timed.row.model, timed.row.engine): timed for timed in rows}.values())
    in_order = sorted(latest, key=lambda timed: (timed.row.device != "cpu", timed.row.threads))
    places = {place: [timed.row for timed in in_order if _place(timed) == place] for place in map(_place, in_order)}
    views = [_view(place, of) for place, of in places.items()]
    tables = [_table(place, of) for place, of in places.items()]
    before = " or ".join(map(str, sorted({timed.row.context for timed in latest})))
    caption = f"Medians of turns, with 20th and 80th percentiles; tokens one by one, after {before} others."
    found = _finding([timed.row for timed in latest])
    return Section(
        anchor="decode",
        name="Run from bits",
        title="GPT-2 writes text from its bits",
        lead="A GPT-2 of signed constants, half of them dropped, run from its bits and as floats in torch. All compute "
        "the same network: their logits were checked against float64 before anything was timed.",
        finding=found,
        plain=f"{found}." if found else "",
        blocks=(Chart(title=found or "Tokens per second", caption=caption, views=views, tables=tables),),
        origin=origin([path], [timed.made for timed in latest], commands=["strongticket bench decode"]),
    )


def _place(timed: Timed[Decoding]) -> Place:
    row = timed.row
    return (timed.made.gpu or row.device, 0) if row.device != "cpu" else ("cpu", row.threads)


def _words(place: Place) -> str:
    device, threads = place
    if device != "cpu":
        return device
    return "one core" if threads == 1 else f"{threads} cores"


def _view(place: Place, rows: Sequence[Decoding]) -> View:
    engines = [engine for engine in _ENGINES if any(row.engine == engine for row in rows)]
    series = []
    for engine in engines:
        line = sorted((row for row in rows if row.engine == engine), key=lambda row: row.weights)
        series.append(
            Series(
                name=_NAMES[engine],
                points=[(_millions(row), row.median) for row in line],
                low=[row.p20 for row in line],
                high=[row.p80 for row in line],
                notes=[f"{row.model}, {row.weight_bytes / 1e6:,.0f} MB" for row in line],
                colour=SERIES[_ENGINES.index(engine)],
                dash="solid" if engine in ("bits", "mask") else "dashed",
            )
        )
    return View(
        name=_words(place),
        says=_says(place, rows),
        x="weights, millions",
        y="tokens per second",
        series=series,
        x_scale="log",
        x_ticks=sorted(set(map(_millions, rows))),
        y_scales=("log", "linear"),
    )


def _says(place: Place, rows: Sequence[Decoding]) -> str:
    """Compare the largest model that runs from bits with float32; empty if there is none."""
    bits = [row for row in rows if row.engine == "bits" and row.times_float32]
    if not bits:
        return ""
    row = max(bits, key=lambda row: row.weights)
    gain = f"GPT-2 {row.model} writes {row.times_float32:.1f} times as many tokens from bits as from float32"
    return f"{sentence(_words(place))}: {gain}"


def _millions(row: Decoding) -> float:
    return float(f"{row.weights / 1e6:.2g}")


def _table(place: Place, rows: Sequence[Decoding]) -> Table:
    ordered = sorted(rows, key=lambda row: (row.weights, _ENGINES.index(row.engine)))
    return table_of(
        f"{_words(place)}: a prompt of {ordered[0].prompt} tokens, then one token at a time",
        ordered,
        {
            "model": lambda row: row.model,
            "engine": lambda row: _NAMES[row.engine],
            "tokens/s": lambda row: number(row.median),
            "times float32": lambda row: f"{row.times_float32:.2f}" if row.times_float32 else "–",
            "first token, s": lambda row: f"{row.first_seconds:.3f}",
            "weights, MB": lambda row: f"{row.weight_bytes / 1e6:,.1f}",
            "process, MB": lambda row: f"{row.memory_bytes / 1e6:,.1f}",
            "of the limit": lambda row: share(row.limit_share),
            "error": lambda row: number(row.error),
        },
        words=2,
    )


def _finding(rows: Sequence[Decoding]) -> str:
    """Say how much faster the largest model runs from bits on one core."""
    alone = [row for row in rows if (row.device, row.threads, row.engine) == ("cpu", 1, "bits") and row.times_float32]
    if not alone:
        return ""
    row = max(alone, key=lambda row: row.weights)
    return (
        f"GPT-2 {row.model} from bits, on one core: {row.times_float32:.1f} times float32’s tokens per second, "
        f"in {row.weight_bytes / 1e6:,.0f} MB"
    )
