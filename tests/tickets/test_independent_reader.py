"""The page docs/ticket-format.md is complete: a reader written from it alone agrees with the golden tickets."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests import independent_reader
from tests.fuzz_ticket import mutants
from tests.small_tickets import edited, small_ticket

from strongticket import Ticket, TicketFormatError
from strongticket.tickets.format import MAX_HEADER_PARTS

HERE = Path(__file__).parents[1]
TICKETS = sorted((HERE / "golden").glob("*.ticket"))
EXPECTED = json.loads((HERE / "golden" / "expected.json").read_text())


@pytest.fixture(scope="module")
def reports() -> dict[str, Any]:
    # -I and -S hide the installed packages, so the reader cannot lean on ours.
    command = [sys.executable, "-I", "-S", str(HERE / "independent_reader.py"), *map(str, TICKETS)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, timeout=300).stdout)


def test_every_golden_ticket_is_read(reports: dict[str, Any]) -> None:
    assert reports.keys() == EXPECTED.keys()


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("field", ["identity", "masked_weights"])
def test_agrees_with_expected(reports: dict[str, Any], name: str, field: str) -> None:
    assert reports[name][field] == EXPECTED[name][field]


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("field", ["masks", "weights"])
def test_agrees_with_the_digests_in_the_file(reports: dict[str, Any], name: str, field: str) -> None:
    assert reports[name]["sha256"][field] == reports[name]["stated_sha256"][field]


def test_both_readers_refuse_the_same_files() -> None:
    """What one of them reads and the other does not, the page leaves open."""
    for kind, data in mutants(3000, seed=7):
        answers = both(data)
        assert len({answer[:4] for answer in answers}) == 1, (kind, answers)


@pytest.mark.parametrize("more", [0, 1])
def test_both_readers_count_commas_and_brackets(more: int) -> None:
    def with_text(text: str) -> bytes:
        return edited(small_ticket().to_bytes(), lambda description: description["metadata"].update(text=text))

    bare = with_text("")
    header = bare[8 : 8 + int.from_bytes(bare[:8], "little")]
    parts = sum(map(header.count, (b",", b"[", b"{")))
    answers = both(with_text("[{," * 10_000 + "," * (MAX_HEADER_PARTS - 30_000 - parts + more)))
    assert [answer[:4] for answer in answers] == [["read", "refu"][more]] * 2, answers


def both(data: bytes) -> list[str]:
    answers = []
    for read, refusal in (
        (Ticket.from_bytes, TicketFormatError),
        (independent_reader.read, independent_reader.FormatError),
    ):
        try:
            read(data)
            answers.append("read")
        except refusal as error:
            answers.append(f"refused: {error}")
    return answers
