"""Where a figure's numbers come from, in words: every figure on the page says so."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from strongticket.container import Json
from strongticket.report.find import Result


def origin_of(result: Result) -> dict[str, str]:
    """Say which file holds the data, and what its run.json says of command, machine and date."""
    config = result.content.get("config", {}) if isinstance(result.content, dict) else {}
    facts = {"Data": str(result.path)}
    if result.copies:
        facts["The same in"] = ", ".join(map(str, result.copies))
    run = result.run if isinstance(result.run, Mapping) else {}
    facts["Command"] = str(run.get("command") or _command(config) or "not recorded")
    if "seed" in config:
        facts["Seed"] = str(config["seed"])
    elif "seeds" in config:
        facts["Seeds"] = ", ".join(map(str, range(config["seeds"])))
    facts["Machine"] = machine_of(run)
    facts["Date"] = date_of(run)
    if run.get("seconds") is not None:
        facts["Took"] = f"{float(run['seconds']):,.0f} s"
    if run.get("commit"):
        facts["Commit"] = str(run["commit"])
    return facts


def _command(config: Mapping[str, Json]) -> str:
    """Spell out the command for figures on text, whose many runs were each started by it."""
    if "schedule" not in config:
        return ""
    models = ",".join(map(str, config["models"]))
    options = f"--schedule {config['schedule']} --models {models} --seeds {config['seeds']}"
    return f"strongticket reproduce {config['figure']} {options}"


def join_origins(origins: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Put the facts of several files together, each said once."""
    joined: dict[str, dict[str, None]] = {}
    for origin in origins:
        for name, fact in origin.items():
            joined.setdefault(name, {})[fact] = None
    return {name: "; ".join(facts) for name, facts in joined.items()}


def machine_of(run: Mapping[str, Json]) -> str:
    """Describe the machine in a few words."""
    words = [str(run[key]) for key in ("gpu", "cpu", "machine") if run.get(key)]
    if run.get("cores"):
        words.append(f"{run['cores']} core{'s' if run['cores'] != 1 else ''}")
    return ", ".join(words) or "not recorded"


def date_of(run: Mapping[str, Json]) -> str:
    """Give date and minute, without what nobody reads."""
    date = str(run.get("date", ""))
    return date[:16].replace("T", " ") + " UTC" if date else "not recorded"


def origin_of_rows(path: Path, rows: Iterable[Mapping[str, Json]], command: str) -> dict[str, str]:
    """Say the same of benchmark rows, which carry machine and date each."""
    rows = list(rows)
    dates = sorted(date_of(row) for row in rows)
    return {
        "Data": str(path),
        "Command": command,
        "Machine": "; ".join(dict.fromkeys(machine_of(row) for row in rows)),
        "Date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
        "Commit": ", ".join(dict.fromkeys(str(row.get("commit", "unknown")) for row in rows)),
    }
