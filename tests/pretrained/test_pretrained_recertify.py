"""`verify --target` holds a model's ticket against the model."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strongticket import DenseTensor, Ticket
from strongticket.cli import app
from strongticket.errors import StrongTicketError
from strongticket.pretrained import attach, construct_pretrained
from strongticket.pretrained.recertify import failures
from tests.pretrained.small_models import FAMILIES, make_bert, randomize, small
from tests.tickets import edited


@pytest.mark.parametrize("items", [20, 32])
def test_what_errs_little_more_than_rounding_is_no_failure(items: int) -> None:
    model = small("bert")
    assert failures(construct_pretrained(model, items=items, what="attention+mlp"), model) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_certificates_come_out_the_same_from_the_file(family: str) -> None:
    data = construct_pretrained(small(family), items=8, what="attention+mlp").to_bytes()
    assert failures(Ticket.from_bytes(data), small(family)) == []

    def boast(place: str, description: dict) -> None:
        certificate = description["certificate"]
        part = next(part for part in certificate["details"]["parts"] if part["part"] == place)
        part["error"] *= 0.999

    for place in ("layer.1.attention", "layer.0.mlp.up", "layer.1.mlp.down"):
        boasting = Ticket.from_bytes(edited(data, lambda d, place=place: boast(place, d)))
        (failure,) = failures(boasting, small(family))
        assert f"of {place}, the masks and the model give" in failure
    worst = Ticket.from_bytes(edited(data, lambda d: d["certificate"].update(error=1e-9)))
    assert "of the worst part" in failures(worst, small(family))[-1]
    silent = Ticket.from_bytes(edited(data, lambda d: d["certificate"]["details"]["parts"].pop()))
    assert failures(silent, small(family)) == ["the certificate says nothing of layer.1.mlp.down"]
    empty = Ticket.from_bytes(edited(data, lambda d: d["certificate"].update(details={"parts": [3]})))
    assert failures(empty, small(family))[0].startswith("the certificate does not list its parts")


@pytest.mark.parametrize("family", FAMILIES)
def test_biases_must_be_the_models(family: str) -> None:
    model = small(family)
    ticket = construct_pretrained(model, items=4, what="attention+mlp")
    dense = list(ticket.dense.values())
    assert len(dense) == 6

    def forged(dense: list[DenseTensor]) -> Ticket:
        same = {"tensors": ticket.tensors.values(), "architecture": ticket.architecture}
        return Ticket(seed=ticket.seed, dense=dense, certificate=ticket.certificate, **same)

    assert failures(forged(dense), model) == []
    for i, bias in enumerate(dense):
        shifted = DenseTensor(name=bias.name, value=bias.value + 1e-3)
        (failure,) = failures(forged([*dense[:i], shifted, *dense[i + 1 :]]), model)
        assert failure.startswith(f"{bias.name} is not the target's: entries differ by up to 1.0")
    without = forged([])
    missing = "the ticket has no dense tensor layer.0.attention.output_bias, and the target has one."
    assert failures(without, model) == [missing]
    with pytest.raises(StrongTicketError, match=missing):
        attach(model, without)


def test_verify_takes_the_models_folder(tmp_path: Path) -> None:
    ticket = construct_pretrained(small("bert"), items=6)
    ticket.save(tmp_path / "x.ticket")
    small("bert").save_pretrained(tmp_path / "right")
    randomize(make_bert(), seed=3).save_pretrained(tmp_path / "wrong")

    def verify(folder: str) -> tuple[int, dict]:
        arguments = ["verify", str(tmp_path / "x.ticket"), "--target", str(tmp_path / folder), "--json"]
        done = CliRunner().invoke(app, arguments)
        return done.exit_code, json.loads(done.stdout)

    assert verify("right") == (
        0,
        {"file": str(tmp_path / "x.ticket"), "identity": ticket.identity, "ok": True, "failures": []},
    )
    code, told = verify("wrong")
    assert code == 1
    assert "the ticket was made for a bert whose weights have SHA-256" in told["failures"][0]


def test_show_speaks_of_parts(tmp_path: Path) -> None:
    construct_pretrained(small("bert"), items=6).save(tmp_path / "x.ticket")
    shown = CliRunner().invoke(app, ["show", str(tmp_path / "x.ticket")])
    assert "each of 2 parts by itself: error at most" in shown.stdout
