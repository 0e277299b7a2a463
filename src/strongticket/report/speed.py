"""Benchmark rows: subset sums per second against peers, and other timings."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from strongticket.charts.parts import SERIES, Chart, Colour, Section, Series, View, grouped, number, share, table_of
from strongticket.report.decode import decode_section
from strongticket.report.find import Benchmarks
from strongticket.report.origin import origin
from strongticket.report.records import SearchSteps, SubsetSums, Timed
from strongticket.report.rules import rules_section

_OURS = "strongticket"

Sums = Timed[SubsetSums]


def speed_sections(rows: Benchmarks) -> list[Section]:
    """Show a file of benchmark rows: subset sums against peers, search steps against dense ones, and others."""
    # Rates of several threads are in wall time, which cannot be compared with the peers' on one thread. The last row of
    # each engine, device and number of items counts.
    alone = [sums for sums in rows.sums if sums.row.threads == 1 and sums.row.engine != "strongticket-1"]
    latest = list({(*_line(sums), sums.row.n): sums for sums in alone}.values())
    sections = [_subset_sums(rows.path, latest)] if latest else []
    sections += [_search_steps(rows.path, rows.steps)] if rows.steps else []
    sections += [decode_section(rows.path, rows.decoding)] if rows.decoding else []
    return sections + ([rules_section(rows.path, rows.rules, rows.rule_steps)] if rows.rules else [])


def _line(sums: Sums) -> tuple[str, str, str | None]:
    """Return engine, device and GPU, which identify a line of the figure."""
    return sums.row.engine, sums.row.device, sums.made.gpu


def sums_chart(rows: list[Sums], caption: str) -> Chart:
    """Draw rates by the number of items, one line per engine and device."""
    lines = grouped(sorted(rows, key=lambda sums: (sums.row.device, sums.row.n)), _line)
    # Ours first, on each device; then the peers, the fastest first.
    order = sorted(lines, key=lambda key: (key[0] != _OURS, -lines[key][-1].row.median))
    series = [
        Series(
            name=_name(lines[key][0]),
            points=[(sums.row.n, sums.row.median) for sums in lines[key]],
            low=[sums.row.p20 for sums in lines[key]],
            high=[sums.row.p80 for sums in lines[key]],
            colour=colour,
            dash="solid" if key[0] == _OURS else "dashed",
        )
        for key, colour in zip(order, _colours(order), strict=True)
    ]
    view = View(
        name="Speed", x="items in a sum, n", y="subset sums solved per second", series=series, y_scales=("log",)
    )
    table = table_of(
        "Subset sums per second, medians",
        [sums for key in order for sums in lines[key]],
        {
            "engine": _name,
            "n": lambda sums: str(sums.row.n),
            "sums per second": lambda sums: number(sums.row.median),
            "slower than strongticket": lambda sums: number(sums.row.times_slower) + "×",
            "true optima": lambda sums: share(sums.row.optimal_share),
            "checked": lambda sums: f"{sums.row.checked:,}",
        },
    )
    found = _finding(rows)
    return Chart(
        title=f"{_OURS}: {found}" if found else "Subset sums per second",
        caption=caption,
        views=(view,),
        tables=(table,),
    )


def _subset_sums(path: Path, rows: list[Sums]) -> Section:
    caption = (
        "Medians with 20th and 80th percentiles. CPU engines have one thread each and are charged its CPU time; all "
        "engines of a device work on the same random problems in one run."
    )
    found = _finding(rows)
    title = f"Subset sums: {found}" if found else "Subset sums per second"
    return Section(
        anchor="speed",
        name="Speed",
        title=title,
        lead="Every entry of every merged matrix is one subset-sum problem: pick, from n random numbers, those whose "
        "sum comes closest to a target. All engines solve the same problems; the table says how often each finds the "
        "true optimum.",
        finding=found,
        blocks=(sums_chart(rows, caption),),
        origin=origin([path], [sums.made for sums in rows], commands=["strongticket bench subset-sum"]),
    )


def _finding(timed: list[Sums]) -> str:
    """Compare strongticket with the fastest peer at the largest number of items; empty without a peer.

    On a CPU if there are rows of one, else on the first GPU.
    """
    rows = [sums.row for sums in timed if sums.row.device == "cpu"]
    rows = rows or [sums.row for sums in timed if sums.made.gpu == timed[0].made.gpu]
    ours = max((row for row in rows if row.engine == _OURS), key=lambda row: row.n, default=None)
    peers = [row for row in rows if ours and row.engine != _OURS and row.n == ours.n]
    if ours is None or not peers:
        return ""
    best = max(peers, key=lambda row: row.median)
    return f"{ours.median / best.median:,.0f} times the fastest peer ({best.label}) at {ours.n} items"


def _colours(lines: Sequence[tuple[str, str, str | None]]) -> Iterator[Colour]:
    """Yield our own colours on a CPU and on the first GPU, and the next free colour for every other line."""
    ours: dict[bool, Colour] = {True: "median", False: "mean"}
    others = iter(colour for colour in SERIES if colour not in ("s0", "s3"))  # those two look like ours
    for engine, device, _ in lines:
        on_cpu = device == "cpu"
        yield ours.pop(on_cpu) if engine == _OURS and on_cpu in ours else next(others, "paper")


def _name(sums: Sums) -> str:
    on_cpu = "one CPU thread" if sums.row.threads == 1 else f"{sums.row.threads} CPU threads"
    return f"{sums.row.label}, {on_cpu if sums.row.device == 'cpu' else sums.made.gpu}"


def _search_steps(path: Path, rows: list[Timed[SearchSteps]]) -> Section:
    names = {"search": "search", "dense": "trained", "gpt2": "GPT-2 published"}
    steps = [step for step, _ in rows]
    table = table_of(
        "One step: a search, the same network trained, and GPT-2 as published",
        steps,
        {
            "model": lambda step: step.model,
            "step": lambda step: names.get(step.kind, step.kind),
            "time / trained": lambda step: f"{step.time_ratio:.3f}" if step.time_ratio else "–",
            "ms per step": lambda step: f"{1000 * step.median:.1f}",
            "tokens per second": lambda step: f"{step.tokens_per_second:,.0f}",
            "peak GB": lambda step: f"{step.peak_bytes / 1e9:.2f}" if step.peak_bytes is not None else "–",
        },
        words=2,
    )
    ratios = [(step.time_ratio, made.gpu or "CPU") for step, made in rows if step.kind == "search" and step.time_ratio]
    slowest, where = max(ratios, default=(None, ""))
    cheap = slowest is not None and slowest <= 1
    return Section(
        anchor="search-speed",
        name="Search speed",
        title="A step of edge-popup costs no more than a training step" if cheap else "The cost of a search step",
        lead="A search step ranks all scores, masks all weights and updates the scores, besides what a training "
        "step does.",
        finding=f"a step of edge-popup takes at most {slowest:.2f} times as long as a training step ({where})"
        if slowest
        else "",
        blocks=(table,),
        origin=origin([path], [made for _, made in rows], commands=["strongticket bench search"]),
    )
