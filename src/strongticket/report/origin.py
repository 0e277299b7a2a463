"""Where the numbers of each figure on the page come from, in words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from strongticket.report.find import Result
from strongticket.report.records import FigureConfig, Made, Plan, typed

_EXPECTED = ("Command", "Machine", "Date")
_NAMED = 8  # runs that are still to do


def gather(facts: Mapping[str, Iterable[str]]) -> dict[str, str]:
    """Combine the facts of several files, without repetition; facts not recorded are named in one line.

    Example:
        >>> gather({"Data": ["a", "b", "a"], "Command": [], "Machine": ["", "a CPU"], "Date": []})
        {'Data': 'a, b', 'Machine': 'a CPU', 'Not recorded': 'command, date'}
    """
    known = {name: list(dict.fromkeys(fact for fact in found if fact)) for name, found in facts.items()}
    if dates := sorted(known.get("Date", [])):
        first, last = dates[0], dates[-1]
        until = last[11:] if first[:10] == last[:10] else last  # the time only, if on the same day
        known["Date"] = [first if len(dates) == 1 else f"{first.removesuffix(' UTC')} to {until}"]
    gathered = {name: (", " if name in ("Data", "Seeds", "Commit") else "; ").join(f) for name, f in known.items() if f}
    if missing := [name.lower() for name in _EXPECTED if name in facts and name not in gathered]:
        gathered["Not recorded"] = ", ".join(missing)
    return gathered


def origin(
    data: Iterable[Path],
    made: Iterable[Made],
    *,
    seeds: Iterable[int] = (),
    commands: Iterable[str] = (),
    copies: Iterable[Path] = (),
    seconds: float = 0.0,
    missing: Iterable[str] = (),
) -> dict[str, str]:
    """Name the data files, and the recorded command, machine and date.

    `commands` replace the recorded ones, `copies` are identical files, `seconds` is the total time, and `missing` names
    the runs still to do.
    """
    made, several = list(made), sorted(set(seeds))
    return gather(
        {
            "Data": map(str, data),
            "The same in": map(str, copies),
            "Command": [*commands] or [how.command or "" for how in made],
            "Seeds" if len(several) > 1 else "Seed": map(str, several),
            "Machine": map(machine_of, made),
            "Date": map(date_of, made),
            "Took": [took(seconds)],
            "Commit": [how.commit or "" for how in made],
            "Still to run": missing,
        }
    )


def origin_of(*results: Result) -> dict[str, str]:
    """Return the origin of figures; for those on text, with the next planned runs, without the hash in their names."""
    missing: list[str] = []
    for result in results:
        names = [name.rpartition("-")[0] for name in typed(Plan, result.content).missing]
        missing += names if len(names) <= _NAMED else [*names[:_NAMED], f"{len(names) - _NAMED} more"]
    return origin(
        [result.path for result in results],
        [how for result in results for how in result.made],
        seeds=[seed for result in results for seed in _seeds(result)],
        commands=[result.made[0].command or command_of(typed(FigureConfig, result.config)) for result in results],
        copies=[copy for result in results for copy in result.copies],
        seconds=sum(result.made[0].seconds or 0 for result in results),
        missing=missing,
    )


def _seeds(result: Result) -> list[int]:
    """Return the seeds that were run: the configuration's, or for figures on text, those in the result."""
    config = typed(FigureConfig, result.config)
    if config.seed is not None:
        return [config.seed]
    return list(_named_seeds(result.content)) if config.schedule else []


def _named_seeds(content: object) -> Iterator[int]:
    parts = content.items() if isinstance(content, Mapping) else enumerate(content) if isinstance(content, list) else ()
    for name, part in parts:
        if name == "seed":
            yield typed(int, part)
        elif name == "seeds" and isinstance(part, list):
            yield from typed(list[int], part)
        elif name != "config":
            yield from _named_seeds(part)


def command_of(config: FigureConfig) -> str:
    """Reconstruct the command of a figure on text, which started each of its many runs."""
    if not config.schedule:
        return ""
    options = f"--schedule {config.schedule} --models {','.join(config.models)}"
    # Different numbers of seeds are the figure's default.
    if len(seeds := set(config.models.values())) == 1:
        options += f" --seeds {seeds.pop()}"
    return f"strongticket reproduce {config.figure} {options}"


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


def machine_of(made: Made) -> str:
    """Describe the machine in a few words; empty if it is not recorded.

    Example:
        >>> machine_of(Made(cpu="Intel(R) Xeon(R) Processor (family 6, model 207)", cores=2))
        'Intel Xeon (family 6, model 207), 2 cores'
    """
    words = [_plain(name) for name in (made.gpu, made.cpu, made.machine) if name]
    if made.cores:
        words.append(f"{made.cores} core{'s' * (made.cores != 1)}")
    return ", ".join(words)


def _plain(machine: str) -> str:
    """Remove trademark signs and filler words from a processor's name."""
    return re.sub(r"\s+", " ", re.sub(r"\((R|TM)\)|\b(CPU|Processor)\b", "", machine)).strip()


def date_of(made: Made) -> str:
    """Return the date to the minute; empty if it is not recorded."""
    return made.date[:16].replace("T", " ") + " UTC" if made.date else ""
