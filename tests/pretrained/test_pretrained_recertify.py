"""`verify --target` holds a model's ticket against the model."""

import json
import math
import re
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strongticket import DenseTensor, FullMask, Ticket
from strongticket.cli.main import app
from strongticket.construct import norms
from strongticket.errors import StrongTicketError
from strongticket.pretrained import attach, construct_pretrained
from strongticket.pretrained.compare import compare
from strongticket.pretrained.parts import Norm
from strongticket.pretrained.recertify import failures
from strongticket.pretrained.verify import verify
from tests.pretrained.small_models import FAMILIES, from_zoo, make_bert, randomize, small
from tests.small_tickets import edited


@pytest.mark.parametrize("items", [20, 32])
def test_what_errs_little_more_than_rounding_is_no_failure(items: int) -> None:
    model = small("bert")
    assert failures(construct_pretrained(model, items=items, what="attention+mlp"), model) == []


@pytest.mark.parametrize("name", ["Llama", "BERT"])
def test_certificates_of_wide_matrices_made_by_the_first_release_are_confirmed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were bounded in one piece, which is closer."""
    monkeypatch.setattr(norms, "_widest_group", ContextVar("_widest_group", default=5))
    monkeypatch.setattr(norms, "_SMALL", 4)
    model = from_zoo(name)
    with norms.undivided():
        data = construct_pretrained(model, items=8, what="attention+mlp").to_bytes()
    assert failures(Ticket.from_bytes(data), model) != []
    assert verify(Ticket.from_bytes(data), model).ok
    boasting = edited(data, lambda d: d["certificate"].update(error=0.999 * d["certificate"]["error"]))
    assert not verify(Ticket.from_bytes(boasting), model).ok


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


LIES: dict[str, tuple[Callable[[Any], object], str]] = {
    "norms of a map": (lambda d: d["parts"][1].update(norm=0.5), "layer.0.mlp.up.norm is 5.0"),
    "norms of a head": (lambda d: d["parts"][0]["heads"][1].update(vo_norm=0.5), "layer.0.attention.heads.1.vo_norm"),
    "errors of a head": (lambda d: d["parts"][3]["heads"][0].update(qk_error=0.0), "layer.1.attention.heads.0.qk_err"),
    "fewer heads": (lambda d: d["parts"][0]["heads"].pop(), "layer.0.attention.heads is \\["),
    "no heads": (lambda d: d["parts"][0].pop("heads"), "layer.0.attention is {'part'"),
    "more": (lambda d: d["parts"][0].update(note="proved"), "layer.0.attention is {.*qk_error"),
    "entries": (lambda d: d["parts"][2].update(worst_entry=1e-9), "layer.0.mlp.down.worst_entry is"),
    "reached": (lambda d: d["parts"][2].update(worst_reached=1e-9), "layer.0.mlp.down.worst_reached is 1.0"),
    "counts": (lambda d: d["parts"][2].update(unreachable=77), "unreachable.count is"),
    "counts below 0": (lambda d: d["parts"][2].update(unreachable=-1), "unreachable.count is 0"),
    "more adaptive": (lambda d: d["assignment"].update(adaptive=99), "assignment.adaptive is 99"),
    "equal blocks": (lambda d: d["assignment"]["equal"].append("layer.0.mlp.up.map"), "assignment.equal is"),
    "no assignment": (lambda d: d.pop("assignment"), r"fields is \['parts', 'scope'"),
    "scope": (lambda d: d.update(scope="from end to end"), "scope is 'from end to end'"),
    "no scope": (lambda d: d.pop("scope"), r"fields is \['assignment', 'parts', 'unreachable'\]"),
    "more about all": (lambda d: d.update(proved="everything"), "fields is .*'proved'"),
}


@pytest.mark.parametrize(("lie", "reason"), LIES.values(), ids=LIES)
def test_details_claim_no_more_than_is_found(lie: Callable[[Any], object], reason: str) -> None:
    lied = Ticket.from_bytes(edited(_honest(), lambda d: lie(d["certificate"]["details"])))
    told = failures(lied, small("bert"))
    assert re.match(f"the certificate's {reason}", told[0])
    assert failures(Ticket.from_bytes(_honest()), small("bert")) == []


@cache
def _honest() -> bytes:
    return construct_pretrained(small("bert"), items=6, what="attention+mlp").to_bytes()


UNREADABLE: dict[str, Callable[[Any], object]] = {
    "no parts": lambda d: d.pop("parts"),
    "parts of another kind": lambda d: d.update(parts={"a": 1}),
    "a part of another kind": lambda d: d["parts"].__setitem__(0, 7),
    "a part without its name": lambda d: d["parts"][0].pop("part"),
    "an error in words": lambda d: d["parts"][0].update(error="small"),
    "another name": lambda d: d["parts"][0].update(part=7),
    "no count": lambda d: d.pop("unreachable"),
    "half a count": lambda d: d["unreachable"].update(count=0.5),
}


@pytest.mark.parametrize("damage", UNREADABLE.values(), ids=UNREADABLE)
def test_a_certificate_without_the_models_parts_is_refused_wherever_it_is_used(
    damage: Callable[[Any], object], tmp_path: Path
) -> None:
    model, refusal = small("bert"), "the certificate does not (list its parts|mention layer.0.attention)"
    ticket = Ticket.from_bytes(edited(_honest(), lambda d: damage(d["certificate"]["details"])))
    assert re.match(refusal, failures(ticket, model)[0])
    for use in (lambda: attach(model, ticket), lambda: compare(model, ticket, ["a b c d"], tokenizer=None)):
        with pytest.raises(StrongTicketError, match=refusal):
            use()
    ticket.save(tmp_path / "x.ticket")
    model.save_pretrained(tmp_path / "bert")  # type: ignore[operator]
    arguments = ["--model", str(tmp_path / "bert"), "--out", str(tmp_path / "x.ticket"), "--items", "6"]
    done = CliRunner().invoke(app, ["construct", *arguments, "--what", "attention+mlp"])
    assert isinstance(done.exception, StrongTicketError), "which `main` turns into a line"
    assert "exists and is not this model's ticket" in str(done.exception)


def test_what_a_ticket_stands_for_is_refused_before_it_is_used() -> None:
    ticket = Ticket.from_bytes(edited(_honest(), lambda d: d["content"]["architecture"].update(what=7)))
    with pytest.raises(StrongTicketError, match="the ticket stands for 7; it must be one of"):
        compare(small("bert"), ticket, ["a b c d"], tokenizer=None)


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
    assert told("nan", "layer.0.mlp.up") == [
        "the certificate does not list its parts: TypeError(\"'nan' is not a number of the right kind\")"
    ]
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
    assert "each of 2 parts by itself: output error at most" in shown.stdout


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
