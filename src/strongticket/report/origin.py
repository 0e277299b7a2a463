"""Where a figure's numbers come from, in words: every figure on the page says so."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from strongticket.files import Json
from strongticket.report.find import Result

_EXPECTED = ("Command", "Machine", "Date")
_NAMED = 8  # runs that are still to do


def gather(facts: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Put facts of several files together, each said once; what nobody recorded is named in one line.

    Example:
        >>> gather({"Data": ["a", "b", "a"], "Command": [], "Machine": ["", "a CPU"], "Date": []})
        {'Data': 'a, b', 'Machine': 'a CPU', 'Not recorded': 'command, date'}
    """
    known = {name: list(dict.fromkeys(fact for fact in found if fact)) for name, found in facts.items()}
    if dates := sorted(known.get("Date", [])):
        known["Date"] = [dates[0] if len(dates) == 1 else _period(dates[0], dates[-1])]
    gathered = {name: (", " if name in ("Data", "Seeds", "Commit") else "; ").join(f) for name, f in known.items() if f}
    if missing := [name.lower() for name in _EXPECTED if name in facts and name not in gathered]:
        gathered["Not recorded"] = ", ".join(missing)
    return gathered


def _period(first: str, last: str) -> str:
    """Write two times of one day as that day and both hours."""
    same = first[:10] == last[:10]
    return f"{first.removesuffix(' UTC')} to {last[11:] if same else last}"


def origin_of(*results: Result) -> dict[str, str]:
    """Say which files hold the data, and what their run.json say of command, machine and date."""
    configs, runs = [_config(result) for result in results], [_run(result) for result in results]
    seeds = [seed for result, config in zip(results, configs, strict=True) for seed in _seeds(result, config)]
    return gather(
        {
            "Data": [str(result.path) for result in results],
            "The same in": [str(copy) for result in results for copy in result.copies],
            "Command": [str(run.get("command") or command_of(c)) for run, c in zip(runs, configs, strict=True)],
            "Seed" if len(set(seeds)) < 2 else "Seeds": map(str, sorted(set(seeds))),
            "Machine": map(machine_of, runs),
            "Date": map(date_of, runs),
            "Took": [took(sum(float(run["seconds"]) for run in runs if run.get("seconds") is not None))],
            "Commit": [str(run.get("commit") or "") for run in runs],
            "Still to run": [name for result in results for name in _still_to_run(result)],
        }
    )


def _config(result: Result) -> Mapping[str, Json]:
    config = result.content.get("config") if isinstance(result.content, dict) else None
    return config if isinstance(config, Mapping) else {}


def _run(result: Result) -> Mapping[str, Json]:
    return result.run if isinstance(result.run, Mapping) else {}


def _seeds(result: Result, config: Mapping[str, Json]) -> list[int]:
    """Give the seeds that were run: the one of the configuration, or of figures on text those their numbers name."""
    if "seed" in config:
        return [int(config["seed"])]
    return list(_named_seeds(result.content)) if "schedule" in config else []


def _still_to_run(result: Result) -> list[str]:
    """Name the next planned runs of a figure on text, without the digits that end each name."""
    missing = result.content.get("missing", []) if isinstance(result.content, dict) else []
    names = [str(name).rpartition("-")[0] for name in missing]
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]


def _named_seeds(content: Json) -> Iterator[int]:
    parts = content.items() if isinstance(content, Mapping) else enumerate(content) if isinstance(content, list) else ()
    for name, part in parts:
        if name == "seed":
            yield int(part)
        elif name == "seeds" and isinstance(part, list):
            yield from map(int, part)
        elif name != "config":
            yield from _named_seeds(part)


def command_of(config: Mapping[str, Json]) -> str:
    """Spell out the command for figures on text, whose many runs were each started by it."""
    if "schedule" not in config:
        return ""
    models = ",".join(map(str, config["models"]))
    options = f"--schedule {config['schedule']} --models {models}"
    # Models with different numbers of seeds are what a figure usually has.
    if len(seeds := set(config["models"].values())) == 1:
        options += f" --seeds {seeds.pop()}"
    return f"strongticket reproduce {config['figure']} {options}"


def took(seconds: float) -> str:
    """Write a duration.

    Example:
        >>> took(33.2), took(390), took(9000), took(0)
        ('33 s', '6.5 min', '2.5 h', '')
    """
    if not seconds:
        return ""
    for unit, size in (("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def machine_of(run: Mapping[str, Json]) -> str:
    """Describe the machine in a few words; nothing if it is not recorded.

    Example:
        >>> machine_of({"cpu": "Intel(R) Xeon(R) Processor (family 6, model 207)", "cores": 2})
        'Intel Xeon (family 6, model 207), 2 cores'
    """
    words = [_plain(str(run[key])) for key in ("gpu", "cpu", "machine") if run.get(key)]
    if run.get("cores"):
        words.append(f"{run['cores']} core{'s' if run['cores'] != 1 else ''}")
    return ", ".join(words)


def _plain(machine: str) -> str:
    """Leave out what a processor's name has for lawyers."""
    return re.sub(r"\s+", " ", re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b", "", machine)).strip()


def date_of(run: Mapping[str, Json]) -> str:
    """Give date and minute, without what nobody reads; nothing if it is not recorded."""
    date = str(run.get("date") or "")
    return date[:16].replace("T", " ") + " UTC" if date else ""


def origin_of_rows(path: Path, rows: Sequence[Mapping[str, Json]], command: str) -> dict[str, str]:
    """Say the same of benchmark rows, which carry machine and date each."""
    return gather(
        {
            "Data": [str(path)],
            "Command": [command],
            "Machine": map(machine_of, rows),
            "Date": map(date_of, rows),
            "Commit": [str(row.get("commit") or "") for row in rows],
        }
    )
