"""A ticket does not depend on the CPU it is constructed on, and its certificate holds and is confirmed on every one."""

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from torch import Tensor

from strongticket import Ticket
from strongticket.construct.recertify import failures
from strongticket.pretrained import construct_pretrained
from strongticket.pretrained.recertify import failures as pretrained_failures
from tests.constructed import Case, bert, cases, sums
from tests.other_cpus import SETTINGS, as_on

ROUNDING = 1e-12  # float64 evaluations of networks whose values stay below a hundred


@pytest.fixture(scope="module", params=SETTINGS)
def elsewhere(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What another CPU would have made."""
    folder = tmp_path_factory.mktemp(request.param)
    command = [sys.executable, "-m", "tests.constructed", str(folder)]
    done = subprocess.run(command, env=as_on(request.param), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", cases())
def test_tickets_are_the_same_bytes(elsewhere: Path, name: str) -> None:
    there = Ticket.load(elsewhere / f"{name}.ticket")
    here = cases()[name].construct()
    assert there.identity == here.identity
    assert there.certificate == here.certificate
    assert (elsewhere / f"{name}.ticket").read_bytes() == here.to_bytes()


def test_so_are_the_sums_they_are_made_from(elsewhere: Path) -> None:
    assert json.loads((elsewhere / "sums.json").read_text()) == sums()


def test_so_are_those_of_a_pretrained_model(elsewhere: Path) -> None:
    here = construct_pretrained(bert(), items=8, what="attention+mlp")
    assert (elsewhere / "bert.ticket").read_bytes() == here.to_bytes()
    assert pretrained_failures(Ticket.load(elsewhere / "bert.ticket"), bert()) == []


@pytest.mark.parametrize("name", cases())
def test_certificates_hold_where_they_are_made_and_here(elsewhere: Path, name: str) -> None:
    ticket, case = Ticket.load(elsewhere / f"{name}.ticket"), cases()[name]
    seen = json.loads((elsewhere / "seen.json").read_text())[name]
    assert 0 < seen <= ticket.certificate.error + ROUNDING
    assert case.worst_error(ticket) <= ticket.certificate.error + ROUNDING
    assert failures(ticket, targets_of(case)) == []


def test_a_linear_certificate_is_an_upper_bound_by_a_hair(elsewhere: Path) -> None:
    """In exact arithmetic, on the input that is worst: the certificate is above what it errs, by under 1e-5 of it."""
    ticket, target = Ticket.load(elsewhere / "linear.ticket"), cases()["linear"].target.weight.detach()
    weights = ticket.materialize()
    first, second, wanted = (exact(x) for x in (weights["first"], weights["second"], target))
    found = multiply(second, first)
    error = [[f - w for f, w in zip(*rows, strict=True)] for rows in zip(found, wanted, strict=True)]
    worst = exact(torch.linalg.svd(torch.tensor(error, dtype=torch.float64)).Vh[:1].T)
    ratio = square(multiply(error, worst)) / square(worst)  # (|E x| / |x|)^2
    certified = Fraction(ticket.certificate.error) ** 2
    assert ratio <= certified <= ratio * (1 + Fraction(2, 10**5))


def targets_of(case: Case) -> dict[str, Tensor]:
    module = getattr(case.target, "source", case.target)
    return module.state_dict()


def exact(matrix: Tensor) -> list[list[Fraction]]:
    return [[Fraction(x) for x in row] for row in matrix.tolist()]


def multiply(left: list[list[Fraction]], right: list[list[Fraction]]) -> list[list[Fraction]]:
    return [
        [sum(a * b for a, b in zip(row, column, strict=True)) for column in zip(*right, strict=True)] for row in left
    ]


def square(column: list[list[Fraction]]) -> Fraction:
    return sum(x * x for (x,) in column)
