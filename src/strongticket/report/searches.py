"""Runs of `strongticket search` and `st.search`: their losses and settings."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from strongticket.charts.parts import SERIES, Chart, Dash, Section, Series, Table, View, sentence, table_of
from strongticket.learn.policy import Policy
from strongticket.models.gpt2 import gpt2_config
from strongticket.report.find import SearchRun
from strongticket.report.names import distinct_names
from strongticket.report.origin import date_of, machine_of, origin
from strongticket.report.records import SearchConfig, typed

_POINTS = 80  # at most, of a training curve: each is the mean of some steps
_MOST = 500  # validations drawn per run; more are thinned out
_DASHES: tuple[Dash, ...] = ("solid", "dashed", "dotted", "dashdot")
# Settings that distinguish runs are sought in this order, then among all others.
_FIRST = ("steps", "lr", "sequences", "length", "text")
_LOUD = {
    "steps": "{:,} steps",
    "lr": "learning rate {:.3g}",
    "sequences": "{} sequences per step",
    "length": "length {}",
}


def search_sections(runs: Sequence[SearchRun]) -> list[Section]:
    """Draw the runs on text, and those in other modules; their losses have nothing in common."""
    on_text = [run for run in runs if run.config.module is None]
    others = [run for run in runs if run.config.module is not None]
    return [_section(own) for own in (on_text, others) if own]


def _section(runs: Sequence[SearchRun]) -> Section:
    """Draw the losses of all runs in one figure, with a table of the runs."""
    in_text = runs[0].config.module is None
    x, unit, what = ("tokens", ", nats per token", "command") if in_text else ("steps", "", "call")
    folders = distinct_names([run.folder for run in runs])
    differences = differences_of([run.config for run in runs])
    lines = _lines(runs, differences, folders)
    validated = [(line.name, *point) for line, _ in lines for point in line.points]
    chart = Chart(
        title=sentence(_finding(runs)) or f"Losses by {x}",
        caption="With points: validation. Thin, without points: training, averaged over neighbouring steps. One colour "
        "per setting; its seeds differ in their dashes. The loss before the first step is in the table. At most about "
        f"{_MOST} validations per run are shown.",
        views=tuple(_view(lines, name, x, f"loss{unit}") for name in ("Both", "Validation", "Training")),
        tables=(
            table_of(
                "Validation losses",
                validated,
                {"run": lambda at: at[0], x: lambda at: f"{at[1]:,.0f}", "loss": lambda at: f"{at[2]:.4f}"},
            ),
        ),
    )
    open_runs = sum(run.result is None for run in runs)
    unfinished = f" {open_runs} of {len(runs)} not finished: the same {what} resumes." if open_runs else ""
    return Section(
        anchor="searches",
        name=(name := "Search runs" if unit else "Search runs in modules"),
        title=name,
        lead="Each run learns a score for every weight and keeps the best; no weight is trained, unless the table says "
        f"so.{f' Losses are in{unit[1:]}.' if unit else ''}{unfinished}",
        finding=_finding(runs),
        blocks=(chart, _run_table(runs, differences, folders)),
        origin=origin(
            [run.folder for run in runs], [run.made for run in runs], seeds=[run.config.seed for run in runs]
        ),
    )


def _lines(
    runs: Sequence[SearchRun], differences: Sequence[Mapping[str, str]], folders: Mapping[Path, str]
) -> list[tuple[Series, Series]]:
    """Draw each run's validation and training losses; x is in tokens, or in steps without a text."""
    seeds: dict[str, list[int]] = {}  # of each setting
    names = [run_name(run.config, own.values()) for run, own in zip(runs, differences, strict=True)]
    lines = []
    for run, name in zip(runs, names, strict=True):
        seed, setting = run.config.seed, json.dumps(run.config.settings, sort_keys=True)
        own = seeds.setdefault(setting, [])
        own += [seed] * (seed not in own)
        shown = name if names.count(name) == 1 else f"{name}, {folders[run.folder]}"
        if run.result is None:
            shown += ", not finished"
        look: dict[str, Any] = {
            "name": shown,
            "colour": SERIES[list(seeds).index(setting) % len(SERIES)],
            "dash": _DASHES[own.index(seed) % len(_DASHES)],
        }
        lines.append((Series(points=_validation(run), **look), Series(points=_training(run), marks=False, **look)))
    return lines


def differences_of(configs: Sequence[SearchConfig]) -> list[dict[str, str]]:
    """Name the settings that distinguish each run from others of the same name, as few as possible.

    Example:
        >>> same = {"mode": "dense", "seed": 0, "steps": 9, "sequences": 4, "length": 32}
        >>> runs = [SearchConfig(size="nano", settings={"lr": lr, "final_lr": lr / 10}, **same) for lr in (0.1, 0.2)]
        >>> differences_of([*runs, SearchConfig(size="mini", settings={"lr": 0.1}, **same)])
        [{'lr': 'learning rate 0.1'}, {'lr': 'learning rate 0.2'}, {}]
    """
    alike: list[tuple[str, ...]] = [(config.size, _what(config)) for config in configs]
    found: list[dict[str, str]] = [{} for _ in configs]
    for name in dict.fromkeys((*_FIRST, *(name for config in configs for name in config.settings))):
        values = [json.dumps(config.settings.get(name), sort_keys=True) for config in configs]
        several = {key for key in alike if len({v for k, v in zip(alike, values, strict=True) if k == key}) > 1}
        for place, (key, config) in enumerate(zip(alike, configs, strict=True)):
            if key in several and name in config.settings:
                found[place][name] = _setting_words(name, config.settings[name])
        alike = [(*key, value) for key, value in zip(alike, values, strict=True)]
    return found


def _setting_words(name: str, value: object) -> str:
    if name == "text" and isinstance(value, Mapping):
        return f"on {value.get('data', 'another text')}"
    return _LOUD[name].format(value) if name in _LOUD else _change(name, value)


def run_name(config: SearchConfig, differences: Iterable[str] = ()) -> str:
    """Name a run in a few words; `differences` distinguish it from others of the same name.

    Example:
        >>> run_name(SearchConfig(size="nano", mode="dense", seed=3, steps=9, sequences=4, length=32))
        'nano, trained, seed 3'
    """
    return ", ".join((config.size, _what(config), *differences, f"seed {config.seed}"))


def _what(config: SearchConfig) -> str:
    if config.module is not None:
        return str(config.settings["rule"])
    return "trained" if config.mode == "dense" else f"scale {scale_words(config)}"


def scale_words(config: SearchConfig) -> str:
    """Write the factor on query and key weights; "auto" is resolved."""
    if config.mode == "dense":
        return "–"
    scale = config.policy["qk_scale"]
    if scale == "auto":
        return f"{gpt2_config(config.size).key_width ** 0.25:.3g} (auto)"
    return f"{typed(float, scale):.3g}"


def policy_words(config: SearchConfig) -> str:
    """Describe the treatment of the weights: the density, and settings that differ from the defaults."""
    if config.mode == "dense":
        return "all weights trained"
    usual = asdict(Policy()) | {name: config.policy[name] for name in ("density", "qk_scale")}
    changed = [_change(name, value) for name, value in config.policy.items() if value != usual.get(name)]
    return ", ".join((f"density {typed(float, config.policy['density']):.3g}", *changed))


def _change(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"not {words}"
    if value is None:
        return f"no {words}"
    return f"{words} {value:.3g}" if isinstance(value, float) else f"{words} {value}"


def _validation(run: SearchRun) -> list[tuple[float, float]]:
    # Counted from the end, so that the last is always drawn.
    steps = _validated(run)
    chosen = steps[:: -(-(-len(steps) // _MOST) or 1)][::-1]
    return [(float(step * run.config.x_per_step), loss) for step, loss in chosen]


def _validated(run: SearchRun) -> list[tuple[int, float]]:
    if run.result is not None:
        return run.result.curve
    return [(line.step, line.validation_loss) for line in run.metrics if line.validation_loss is not None]


def _training(run: SearchRun) -> list[tuple[float, float]]:
    """Return the training loss, averaged over neighbouring steps, so that it makes a line, not a cloud."""
    steps = [(line.step, line.loss) for line in run.metrics if line.loss is not None]
    size = -(-len(steps) // _POINTS) or 1
    parts = [steps[first : first + size] for first in range(0, len(steps), size)]
    means = [tuple(sum(column) / len(part) for column in zip(*part, strict=True)) for part in parts]
    return [(step * run.config.x_per_step, loss) for step, loss in means]


def _view(lines: Sequence[tuple[Series, Series]], name: str, x: str, y: str) -> View:
    series = []
    for validation, training in lines:
        if name != "Training" and validation.points:
            # The loss before the first step is far above all others, and would squeeze them.
            later = [point for point in validation.points if point[0] > 0]
            series.append(replace(validation, points=later or validation.points))
        if name != "Validation" and training.points:
            below = name == "Both" and bool(validation.points)  # the training loss accompanies the validation loss
            label = f"{training.name}, training" if below else training.name
            series.append(replace(training, name=label, thin=name == "Both", follows=below))
    return View(name=name, x=x, y=y, series=series, y_scales=("linear",))


def _run_table(
    runs: Sequence[SearchRun], differences: Sequence[Mapping[str, str]], folders: Mapping[Path, str]
) -> Table:
    settings_of = dict(zip((run.folder for run in runs), differences, strict=True))

    def settings(run: SearchRun) -> str:
        policy = policy_words(run.config)
        # Steps are in the column "state", and the policy has its own settings.
        others = [words for name, words in settings_of[run.folder].items() if name != "steps" and words not in policy]
        return ", ".join((policy, *others))

    def rate(found: float | None) -> str:
        return "–" if found is None else f"{found:,.0f}"

    own: dict[str, Callable[[SearchRun], str]]
    if runs[0].config.module is None:
        own = {"scale": lambda run: scale_words(run.config), "tokens/s": lambda run: rate(run.made.tokens_per_second)}
    else:
        own = {"rule": lambda run: _what(run.config), "steps/s": lambda run: rate(run.made.steps_per_second)}
    columns: dict[str, Callable[[SearchRun], str]] = {
        "run": lambda run: folders[run.folder],
        "best loss": lambda run: "–" if (best := _best(run)) is None else f"{best:.4f}",
        "seed": lambda run: str(run.config.seed),
        **own,
        "model": lambda run: run.config.size,
        "settings": settings,
        "state": state_of,
        # Without the processor's model numbers, which are in the section's origin.
        "machine": lambda run: re.sub(r" \([^()]*\)", "", machine_of(run.made)) or "–",
        "date, UTC": lambda run: date_of(run.made).removesuffix(" UTC") or "–",
    }
    return table_of("The runs", runs, columns, remarks=5)


def state_of(run: SearchRun) -> str:
    """Say whether a run is finished, and whether it was resumed."""
    if run.result is None:
        done = max((line.step for line in run.metrics), default=0)
        return f"not finished: step {done:,} of {run.config.steps:,}"
    at = run.made.resumed_at_step
    return f"{run.config.steps:,} steps" + (f", resumed at {at:,}" if at else "")


def _best(run: SearchRun) -> float | None:
    if run.result is not None:
        return run.result.best_validation_loss
    return min((loss for _, loss in _validated(run)), default=None)


def _finding(runs: Sequence[SearchRun]) -> str:
    if len({json.dumps(run.config.text, sort_keys=True) for run in runs}) > 1:
        return f"{len(runs)} runs on several texts; their losses cannot be compared"
    found = []
    for mode, what in (("search", "ticket"), ("dense", "trained model")):
        own = [(best, run) for run in runs if run.config.mode == mode and (best := _best(run)) is not None]
        if own:
            best, run = min(own, key=lambda pair: pair[0])
            found.append(f"best {what} {best:.3f} ({run_name(run.config)})")
    return "validation loss: " + "; ".join(found) if found else ""
