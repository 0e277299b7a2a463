"""The search that the frontier recommends for a number of bytes: `search --budget-bytes`.

The best tickets are packaged in `frontier.json`. After new rows, write it again:
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
from strongticket.settings import filled

PACKAGED = Path(__file__).with_name("frontier.json")
_SCHEDULE = ("sequences", "steps", "warmup", "lr", "final_lr", "weight_decay", "clip")


class Recommended(TypedDict):
    """A ticket on the frontier: its largest size over seeds, its mean loss, and the settings of its search."""

    name: str
    bytes: int
    loss: float
    strong: bool
    settings: dict[str, Json]


def leading(result: Json) -> list[Recommended]:
    """Take the tickets on the frontier from its result, smallest first."""
    found: list[Recommended] = []
    for point in result["points"]:
        config = filled(point["config"], RunConfig)
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


def known_tickets() -> list[Recommended]:
    """Read the packaged tickets; none until the frontier has been run."""
    known: list[Recommended] = read_json(PACKAGED) or []
    return known


def recommend(budget: int, *, strong: bool, known: Sequence[Recommended] | None = None) -> Recommended:
    """Return the ticket of the lowest loss that fits.

    Args:
        budget: bytes of the file, for GPT-2's tokens.
        strong: leave out tickets with learned scales or norms.
        known: tickets to choose from; by default the packaged ones.
    """
    every = known_tickets() if known is None else known
    suited = [each for each in every if each["strong"] or not strong]
    if not suited:
        raise ValueError(
            "this release has no frontier to choose a search from. Choose --size yourself: a strong ticket takes about "
            "a bit per weight, 4.3 MB for mini."
        )
    fitting = [each for each in suited if each["bytes"] <= budget]
    if not fitting:
        least = min(suited, key=lambda each: each["bytes"])
        raise ValueError(
            f"no search on the frontier finds a ticket in {budget:,} bytes; the smallest takes {least['bytes']:,} "
            f"({least['name']}): --budget-bytes {least['bytes']}."
        )
    return min(fitting, key=lambda each: each["loss"])


def config_of(chosen: Recommended, given: Mapping[str, Any]) -> RunConfig:
    """Turn a recommendation into a run; the rest of its schedule scales with the given steps and learning rate."""
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
