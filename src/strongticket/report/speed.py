"""Benchmark rows: subset sums a second against peers, and what else was timed."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from strongticket.charts.parts import SERIES, Chart, Colour, Section, Series, Table, View, number, share
from strongticket.files import Json
from strongticket.report.origin import origin_of_rows

_OURS = "strongticket"


def speed_sections(path: Path, rows: Sequence[Json]) -> list[Section]:
    """Show what a file of benchmark rows holds: subset sums against peers, search steps against dense ones."""
    # Rates of several threads are in wall time, and would not compare with the peers' on one.
    alone = [row for row in rows if row.get("threads", 1) == 1 and row.get("engine") != "strongticket-1"]
    sums = _latest([row for row in alone if row.get("op") == "subset_sum" and "engine" in row])
    steps = [row for row in rows if row.get("op") == "search"]
    sections = []
    if sums:
        sections.append(_subset_sums(path, sums))
    if steps:
        sections.append(_search_steps(path, steps))
    return sections


def _latest(rows: list[Json]) -> list[Json]:
    """Keep the last row of each engine, device and number of items."""
    return list({(row["engine"], row["device"], row["gpu"], row["n"]): row for row in rows}.values())


def _subset_sums(path: Path, rows: list[Json]) -> Section:
    lines: dict[tuple[str, str, str | None], list[Json]] = {}
    for row in sorted(rows, key=lambda row: (row["device"], row["n"])):
        lines.setdefault((row["engine"], row["device"], row["gpu"]), []).append(row)
    # Ours first, on each device; then the peers, the fastest first.
    order = sorted(lines, key=lambda key: (key[0] != _OURS, -lines[key][-1]["median"]))
    series = []
    for key, colour in zip(order, _colours(order), strict=True):
        own = lines[key]
        series.append(
            Series(
                name=_name(own[0]),
                points=[(row["n"], row["median"]) for row in own],
                low=[row["p20"] for row in own],
                high=[row["p80"] for row in own],
                colour=colour,
                dash="solid" if own[0]["engine"] == _OURS else "dashed",
            )
        )
    view = View(name="Speed", x="items in a sum, n", y="subset sums solved a second", series=series, y_scales=("log",))
    chart = Chart(
        title="Subset sums, engine by engine",
        caption="Medians with 20th and 80th percentiles. One thread a CPU engine, charged its CPU time; all engines of "
        "a device on the same random problems in one run.",
        views=(view,),
        tables=(_sum_table([lines[key] for key in order]),),
    )
    cpu = [row for row in rows if row["device"] == "cpu"]
    finding = ""
    if cpu and any(row["engine"] == _OURS for row in cpu):
        largest = max(row["n"] for row in cpu if row["engine"] == _OURS)
        peers_there = [row for row in cpu if row["n"] == largest and row["engine"] != _OURS]
        own_rate = next(row["median"] for row in cpu if row["n"] == largest and row["engine"] == _OURS)
        if peers_there:
            best = max(peers_there, key=lambda row: float(row["median"]))
            finding = f"{own_rate / best['median']:,.0f} times the fastest peer ({best['label']}) at {largest} items"
    return Section(
        anchor="speed",
        name="Speed",
        title="Speed against peers",
        lead="Every entry of every merged matrix is one subset-sum problem: pick, from n random numbers, those whose "
        "sum comes closest to a target. All engines solve the same problems; where one stops short of the true "
        "optimum, the table says how often.",
        finding=finding,
        blocks=(chart,),
        origin=origin_of_rows(path, rows, "strongticket bench subset-sum"),
    )


def _colours(lines: Sequence[tuple[str, str, str | None]]) -> Iterator[Colour]:
    """Give ours its colours, on a CPU and on the first GPU; each other line, another GPU's too, the next one."""
    ours: dict[bool, Colour] = {True: "median", False: "mean"}
    others = iter(colour for colour in SERIES if colour not in ("s0", "s3"))  # those two look like ours
    for engine, device, _ in lines:
        on_cpu = device == "cpu"
        yield ours.pop(on_cpu) if engine == _OURS and on_cpu in ours else next(others, "paper")


def _name(row: Json) -> str:
    where = str(row["gpu"]) if row["device"] != "cpu" else "one CPU thread"
    return f"{row['label']}, {where}"


def _sum_table(lines: list[list[Json]]) -> Table:
    rows = [
        (
            _name(row),
            str(row["n"]),
            number(row["median"]),
            number(row["times_slower"]) + "×" if row.get("times_slower") else "–",
            share(row["optimal_share"]) if row.get("optimal_share") is not None else "–",
            f"{row['checked']:,}",
        )
        for line in lines
        for row in line
    ]
    columns = ("engine", "n", "sums a second", "slower than strongticket", "true optima", "checked")
    return Table(caption="Subset sums a second, medians", columns=columns, rows=rows)


def _search_steps(path: Path, rows: list[Json]) -> Section:
    names = {"search": "search", "dense": "trained", "gpt2": "GPT-2 published"}
    cells = [
        (
            str(row["model"]),
            names.get(row["kind"], str(row["kind"])),
            f"{row['time_ratio']:.3f}" if row.get("time_ratio") else "–",
            f"{1000 * row['median']:.1f}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['peak_bytes'] / 1e9:.2f}",
        )
        for row in rows
    ]
    columns = ("model", "step", "time / trained", "ms a step", "tokens a second", "peak GB")
    ratios = [row["time_ratio"] for row in rows if row["kind"] == "search" and row.get("time_ratio")]
    caption = "One step: a search, the same network trained, and GPT-2 as published"
    table = Table(caption=caption, columns=columns, rows=cells, words=2)
    return Section(
        anchor="search-speed",
        name="Search speed",
        title="What a step of search costs",
        lead="A search step ranks all scores, masks all weights and updates the scores. It should cost no more than a "
        "step of ordinary training.",
        finding=f"a search step takes {max(ratios):.2f} times a training step at most" if ratios else "",
        blocks=(table,),
        origin=origin_of_rows(path, rows, "strongticket bench search"),
    )
