"""`verify --target` holds a model's ticket against the model."""

import json
import math
import time
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strongticket import DenseTensor, FullMask, Ticket
from strongticket.cli.main import app
from strongticket.errors import StrongTicketError
from strongticket.pretrained import attach, construct_pretrained
from strongticket.pretrained.parts import Norm
from strongticket.pretrained.recertify import failures
from tests.pretrained.small_models import FAMILIES, from_zoo, make_bert, randomize, small
from tests.small_tickets import edited


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
        assert f"for {place}, the masks and the model give" in failure
    worst = Ticket.from_bytes(edited(data, lambda d: d["certificate"].update(error=1e-9)))
    assert "for the worst part" in failures(worst, small(family))[-1]
    silent = Ticket.from_bytes(edited(data, lambda d: d["certificate"]["details"]["parts"].pop()))
    assert failures(silent, small(family)) == ["the certificate does not mention layer.1.mlp.down"]
    empty = Ticket.from_bytes(edited(data, lambda d: d["certificate"].update(details={"parts": [3]})))
    assert failures(empty, small(family))[0].startswith("the certificate does not list its parts")


def test_certified_inputs_are_no_larger_than_those_computed_for() -> None:
    model = small("bert")
    data = construct_pretrained(model, items=4, what="attention+mlp").to_bytes()

    def told(claim: object, *places: str) -> list[str]:
        def boast(description: dict) -> None:
            certificate = description["certificate"]
            claims = {part["part"]: part for part in certificate["details"]["parts"]} | {"all": certificate}
            for place in places or claims:
                claims[place]["input_norm"] = claim

        return failures(Ticket.from_bytes(edited(data, boast)), model)

    # An attention and two maps in each of two layers, and the certificate itself.
    assert len(told(1e9)) == 7
    (failure,) = told(1e9, "layer.1.attention")
    assert "covers inputs of norm 1.000000e+09 for layer.1.attention, the model gives" in failure
    assert "for all parts" in told(1e9, "all")[0]
    assert "norm nan for layer.0.mlp.up" in told("nan", "layer.0.mlp.up")[0]
    assert told(0.5) == [], "who claims less is right"


@pytest.mark.parametrize("there", ["below", "above"])
def test_a_norm_whose_last_bit_rounds_otherwise_is_no_failure(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A norm that is 42.5 on one machine, and a bit more on another, is stored as 42.5 or 42.5001."""
    below, above = 42.5, math.nextafter(42.5, math.inf)
    model = small("bert")

    def bounded_by(norm: float) -> None:
        monkeypatch.setattr(Norm, "largest", lambda *_: norm)

    bounded_by(below if there == "below" else above)
    ticket = construct_pretrained(model, items=8, what="attention+mlp")
    (stored,) = {part["input_norm"] for part in ticket.certificate.details["parts"] if part["part"].endswith("up")}
    assert stored == (42.5 if there == "below" else 42.5001)
    bounded_by(above if there == "below" else below)
    assert failures(ticket, model) == []
    bounded_by(42.0)
    assert "covers inputs of norm 4.2500" in failures(ticket, model)[-1]


def test_parts_that_are_not_there_cannot_be_certified() -> None:
    data = construct_pretrained(small("bert"), items=4).to_bytes()

    def repeat(description: dict) -> None:
        parts = description["certificate"]["details"]["parts"]
        parts.append({**parts[0], "part": "layer.9.attention"})

    (failure,) = failures(Ticket.from_bytes(edited(data, repeat)), small("bert"))
    assert failure == "the certificate lists 3 parts, but the model has 2"


def test_masks_of_another_kind_are_a_failure() -> None:
    ticket = construct_pretrained(small("bert"), items=4)
    tensors = [
        replace(t, mask=FullMask(t.shape)) if t.name == "layer.0.attention.head.0.key" else t
        for t in ticket.tensors.values()
    ]
    same = {"dense": ticket.dense.values(), "architecture": ticket.architecture, "certificate": ticket.certificate}
    (failure,) = failures(Ticket(seed=ticket.seed, tensors=tensors, **same), small("bert"))
    assert "needs a mask with one coordinate per unit; its mask is of kind 'ones'" in failure.replace("\\", "")


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
    missing = "the ticket has no dense tensor layer.0.attention.output_bias, but the target has one."
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


def test_verifying_takes_less_cpu_time_than_constructing() -> None:
    """With as many threads as there are: they used to wait for each other, for longer than the construction took."""
    model = from_zoo("Llama", hidden_size=192, intermediate_size=400, head_dim=48)
    failures(construct_pretrained(model, items=4), model)  # compiles
    times = [time.process_time()]
    ticket = construct_pretrained(model, items=16, what="attention+mlp")
    times.append(time.process_time())
    assert failures(ticket, model) == []
    times.append(time.process_time())
    constructing, verifying = times[1] - times[0], times[2] - times[1]
    assert verifying < constructing
