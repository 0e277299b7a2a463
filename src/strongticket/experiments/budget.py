"""Which search the frontier recommends for a number of bytes: `search --budget-bytes`.

The package has the tickets that lead in `frontier.json`. After new rows it is made again:
python -m strongticket.experiments.budget results/frontier/result.json
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict

from strongticket.files import Json, read_json, write_json
from strongticket.learn.config import RunConfig
from strongticket.learn.policy import Policy

PACKAGED = Path(__file__).with_name("frontier.json")
_SCHEDULE = ("sequences", "steps", "warmup", "lr", "final_lr", "weight_decay", "clip")


class Recommended(TypedDict):
    """A ticket that leads: the most bytes that a seed of it took, its mean loss, and the settings of its search."""

    name: str
    bytes: int
    loss: float
    strong: bool
    settings: dict[str, Json]


def leading(result: Json) -> list[Recommended]:
    """Take the tickets that lead from the frontier's result, small ones first."""
    found: list[Recommended] = []
    for point in result["points"]:
        config = point["config"]
        if point["leads"] and config["mode"] == "search":
            policy = {own.name: config["policy"][own.name] for own in fields(Policy)}
            found.append(
                {
                    "name": point["name"],
                    "bytes": int(max(point["bytes"]["values"])),
                    "loss": round(point["best_validation_loss"]["mean"], 4),
                    "strong": point["kind"] == "strong tickets",
                    "settings": {"size": config["size"], "policy": policy} | {key: config[key] for key in _SCHEDULE},
                }
            )
    return sorted(found, key=lambda each: each["bytes"])


def recommend(budget: int, *, strong: bool, known: Sequence[Recommended] | None = None) -> Recommended:
    """Give the ticket of the lowest loss that fits.

    Args:
        budget: bytes of the file, for GPT-2's tokens.
        strong: leave out tickets with learned scales or norms.
        known: by default those of the package.
    """
    every: Sequence[Recommended] = (read_json(PACKAGED) or []) if known is None else known
    suited = [each for each in every if each["strong"] or not strong]
    if not suited:
        raise ValueError("this release has no frontier to choose a search by; choose the settings yourself.")
    fitting = [each for each in suited if each["bytes"] <= budget]
    if not fitting:
        least = min(suited, key=lambda each: each["bytes"])
        raise ValueError(
            f"no search on the frontier finds a ticket in {budget:,} bytes; the least takes {least['bytes']:,} "
            f"({least['name']}): --budget-bytes {least['bytes']}."
        )
    return min(fitting, key=lambda each: each["loss"])


def config_of(chosen: Recommended, given: Mapping[str, Any]) -> RunConfig:
    """Make a run of a recommendation and what a user asks of its schedule, whose other parts follow that."""
    settings = dict(chosen["settings"])
    policy = Policy(**settings.pop("policy"))
    if "steps" in given:
        settings["warmup"] = settings["warmup"] * given["steps"] // settings["steps"]
    if "lr" in given:
        settings["final_lr"] = settings["final_lr"] / settings["lr"] * given["lr"]
    settings |= given
    settings["micro_batch"] = min(settings.get("micro_batch", RunConfig().micro_batch), settings["sequences"])
    return RunConfig(policy=policy, **settings)


if __name__ == "__main__":
    write_json(PACKAGED, leading(read_json(Path(sys.argv[1]))))
