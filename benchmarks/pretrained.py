"""all-MiniLM-L6-v2 as tickets: similarity, errors, time and size by the number of items.

    python benchmarks/pretrained.py --model FOLDER --text TEXT --out out/minilm [--items 8 12 16 20 24] [--what ...]

runs `strongticket construct` and `strongticket compare` once for each number of items and keeps what they print in
OUT/<what>-<items>.json; what is there is not run again. `--collect results/pretrained` then writes the committed files
and the figure. The numbers do not depend on the machine, save those under "run".
"""

import argparse
import json
import math
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

D_MODEL, HIDDEN = 384, 1536


def run_json(*arguments: object) -> tuple[dict[str, Any], dict[str, float]]:
    """Run one command of the package and give its JSON, and what it cost."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "strongticket.cli", *map(str, arguments), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost = {"seconds": time.perf_counter() - start, "cpu_seconds": cpu, "load": os.getloadavg()[0]}
    return json.loads(done.stdout), cost


def measure(model: str, text: Path, what: str, items: int, workers: int, folder: Path) -> None:
    """Construct and compare with one number of items."""
    out = folder / f"{what}-{items}.json"
    if out.exists():
        return
    ticket = folder / f"{what}-{items}.ticket"
    ticket.unlink(missing_ok=True)
    settings = ("--items", items, "--what", what, "--workers", workers)
    constructed, cost = run_json("construct", "--model", model, "--out", ticket, *settings)
    compared, compare_cost = run_json("compare", "--model", model, "--ticket", ticket, "--text", text)
    # Neither a machine's paths nor its load belong among the numbers.
    del constructed["file"]
    run = {
        "construct": cost,
        "compare": compare_cost,
        "workers": workers,
        "machine": platform.processor() or platform.machine(),
    }
    out.write_text(json.dumps({"what": what, "items": items, "ticket": constructed, "compare": compared, "run": run}))


def information_limit(outputs: int, inputs: int, largest: float, error: float) -> float:
    """Hidden units that d1 d2 numbers need at least: a unit has d1 + d2 bits, a number log2(range / (2 error))."""
    return outputs * inputs / (outputs + inputs) * math.log2(2 * largest / (2 * error))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--what", default="attention")
    parser.add_argument("--items", type=int, nargs="+", default=[8, 12, 16, 20, 24])
    parser.add_argument("--workers", type=int, default=2)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for items in arguments.items:
        measure(arguments.model, arguments.text, arguments.what, items, arguments.workers, arguments.out)


if __name__ == "__main__":
    main()
