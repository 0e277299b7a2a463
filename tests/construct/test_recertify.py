import json
import math
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import strongticket as st
from strongticket.bounds.upward import up_digits
from strongticket.construct import certify, norms
from strongticket.construct.linear import plan_linear
from strongticket.construct.plan import Wanted
from strongticket.construct.recertify import _out_of_reach, failures, recertify
from strongticket.errors import StrongTicketError
from strongticket.models.attention import Attention
from strongticket.models.transformer import Block, FeedForward, Transformer, random_transformer
from strongticket.ops.ordered import ordered_product
from strongticket.tickets.build import Form
from strongticket.tickets.content import digest_of_tensors
from tests.construct.test_construct import draw, random_attention
from tests.small_tickets import edited, small_ticket

# Listed so that nothing is constructed while tests are collected, by every process.
KINDS = (
    "linear",
    "linear with bias",
    "sequence",
    "matrix",
    "layer",
    "feedforward",
    "uneven",
    "attention",
    "merged",
    "smaller",
    "torch",
    "transformer",
)


@cache
def constructed() -> dict[str, tuple[st.Ticket, dict[str, torch.Tensor]]]:
    torch.manual_seed(0)
    attention = random_attention(2, 3, 2, bias=True, seed=0)
    torch_attention = nn.MultiheadAttention(4, 2)
    network = FeedForward([draw(3, 2, seed=0), draw(2, 3, seed=1)], [draw(3, seed=2), None])
    transformer = random_transformer(2, 2, key_width=3, generator=torch.Generator().manual_seed(0))
    matrix, layer = draw(2, 3, seed=5), nn.Linear(3, 2)
    sequence = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    widths = {"key_width": 48, "value_width": 48}
    made = [
        (st.construct_linear(matrix, hidden_width=48), {"weight": matrix}),
        (st.construct_linear(layer, hidden_width=48), layer.state_dict()),
        (st.construct_feedforward(sequence, hidden_width=48), sequence.state_dict()),
        (st.construct_feedforward(matrix, hidden_width=48), {"weight": matrix}),
        (st.construct_feedforward(layer, hidden_width=48), layer.state_dict()),
        (st.construct_feedforward(network, hidden_width=48), network.state_dict()),
        (st.construct_feedforward(network, hidden_width=(48, 60)), network.state_dict()),
        (st.construct_attention(attention, **widths), attention.state_dict()),
        (st.construct_attention(attention.merged(), **widths), attention.merged().state_dict()),
        (st.construct_attention(attention, blocks="smaller", **widths), attention.state_dict()),
        (st.construct_attention(torch_attention, **widths), torch_attention.state_dict()),
        (
            st.construct_transformer(transformer, hidden_width=48, **widths),
            transformer.state_dict(),
        ),
    ]
    return dict(zip(KINDS, made, strict=True))


@pytest.mark.parametrize("name", KINDS)
def test_certificate_comes_out_the_same_from_the_file(name: str) -> None:
    ticket, target = constructed()[name]
    loaded = st.Ticket.from_bytes(ticket.to_bytes())
    recomputed = recertify(loaded, target).error
    assert recomputed <= ticket.certificate.error == up_digits(recomputed)
    assert failures(loaded, target) == []
    boasting = edited(ticket.to_bytes(), lambda d: d["certificate"].update(error=ticket.certificate.error * 0.999))
    (failure,) = failures(st.Ticket.from_bytes(boasting), target)
    assert "the masks and the target give" in failure


def test_a_certificate_may_not_be_too_small_by_more_than_norms_differ() -> None:
    ticket, target = constructed()["feedforward"]
    recomputed = recertify(ticket, target).error

    def told(error: float) -> list[str]:
        return failures(forged(ticket, certificate=replace(ticket.certificate, error=error)), target)

    assert told(recomputed) == told(recomputed * (1 - 5e-10)) == []
    assert len(told(recomputed * (1 - 2e-9))) == 1


@pytest.mark.parametrize("construct", [st.construct_linear, st.construct_feedforward])
def test_certificates_of_wide_matrices_made_by_the_first_release_are_confirmed(
    construct: Callable[..., st.Ticket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were bounded in one piece, which is closer. What the masks give is still refused below that."""
    monkeypatch.setattr(norms, "_widest_group", ContextVar("_widest_group", default=5))
    monkeypatch.setattr(norms, "_SMALL", 4)
    target = draw(12, 11, seed=0)
    with norms.undivided():
        before = construct(target, hidden_width=11 * 12)
    now = construct(target, hidden_width=11 * 12)
    assert now.identity == before.identity
    assert before.certificate.error < 0.9 * now.certificate.error
    assert st.verify(before, target).ok
    assert st.verify(now, target).ok
    less = replace(before.certificate, error=0.999 * before.certificate.error)
    (failure,) = st.verify(forged(before, certificate=less), target).failures
    assert "the masks and the target give" in failure


@pytest.mark.parametrize(("d_out", "items", "rows"), [(1, 28, 1), (2, 24, 2), (8, 24, 1)])
def test_what_errs_little_more_than_rounding_is_confirmed(d_out: int, items: int, rows: int) -> None:
    """Where the free matrix keeps less than the one with blocks: few outputs, or few that are not 0."""
    for seed in range(4):
        target = torch.zeros(d_out, 64, dtype=torch.float64)
        target[:rows] = draw(rows, 64, seed=seed, scale=0.3)
        ticket = st.construct_linear(target, hidden_width=64 * items, seed=seed)
        assert failures(ticket, {"weight": target}) == []


def forged(ticket: st.Ticket, *, settings: dict[str, Any] | None = None, **changes: Any) -> st.Ticket:
    """Make a ticket of the same parts but those that are given; `settings` are of the architecture."""
    same = {"seed": ticket.seed, "tensors": ticket.tensors.values(), "dense": ticket.dense.values()}
    architecture = {**ticket.architecture, **(settings or {})}
    return st.Ticket(**{**same, "certificate": ticket.certificate, "architecture": architecture, **changes})


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield path
    for key, part in parts:
        yield from leaves(part, (*path, key))


def with_leaf(details: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    if not path:
        return change(details)
    copied = list(details) if isinstance(details, list) else dict(details)
    copied[path[0]] = with_leaf(details[path[0]], path[1:], change)
    return copied


FORGERIES: list[Callable[[Any], Any]] = [
    lambda value: value * 0.9 if isinstance(value, float) else "other",
    lambda value: value * 1.1 + 1e-9 if isinstance(value, float) else None,
    lambda value: {**value, "more": 1} if isinstance(value, dict) else [value],
    lambda value: value[1:] if isinstance(value, list) and value else {"a": value},
]


@pytest.mark.parametrize("name", ["unreachable", "linear", "feedforward", "attention", "transformer"])
def test_no_claim_of_the_details_can_be_forged(name: str) -> None:
    if name == "unreachable":
        target = {"weight": 9 * draw(2, 3, seed=5)}
        ticket = st.construct_linear(target["weight"], hidden_width=6)
        assert ticket.certificate.details["unreachable"]["worst"]
    else:
        ticket, target = constructed()[name]
    assert failures(ticket, target) == []
    details = json.loads(json.dumps(ticket.certificate.details))
    for path in leaves(details):
        for forge in FORGERIES:
            claimed = with_leaf(details, path, forge)
            if claimed == details or not isinstance(claimed, dict):
                continue
            (failure,) = failures(forged(ticket, certificate=replace(ticket.certificate, details=claimed)), target)
            assert "\n" not in failure


def out_of_reach() -> list[tuple[st.Ticket, dict[str, torch.Tensor]]]:
    """Tickets of every kind of product, with more entries out of reach than are listed."""
    matrix = 9 * draw(4, 3, seed=5)
    network = FeedForward([9 * draw(3, 2, seed=0), 9 * draw(2, 3, seed=1)], [draw(3, seed=2), None])
    attention = random_attention(2, 3, 2, bias=True, seed=0)
    large = Attention(9 * attention.query, attention.key, attention.value, 9 * attention.output, attention.output_bias)
    return [
        (st.construct_linear(matrix, hidden_width=9), {"weight": matrix}),
        (st.construct_feedforward(network, hidden_width=6), network.state_dict()),
        (st.construct_attention(large, key_width=6, value_width=6), large.state_dict()),
        (st.construct_attention(large, key_width=6, value_width=6, blocks="smaller"), large.state_dict()),
    ]


@pytest.mark.parametrize("listed", [3, certify.LISTED])
def test_entries_out_of_reach_are_counted_again(listed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify, "LISTED", listed)
    for ticket, target in out_of_reach():
        said = ticket.certificate.details["unreachable"]
        count, worst = said["count"], said["worst"]
        assert count > 3
        assert len(worst) == min(count, listed)
        assert failures(ticket, target) == []
        for forgery in (
            {"count": count + 1, "worst": worst},
            {"count": count - 1, "worst": worst},
            {"count": count - 1, "worst": worst[:-1]},
            {"count": count - 1, "worst": worst[1:]},
            {"count": count, "worst": worst[1:]},
            {"count": 0, "worst": []},
            {"count": count, "worst": [*worst[:-1], worst[0]]},
        ):
            details = {**ticket.certificate.details, "unreachable": forgery}
            (failure,) = failures(forged(ticket, certificate=replace(ticket.certificate, details=details)), target)
            assert failure.startswith("the certificate's details.unreachable.")


@pytest.mark.parametrize("seed", range(4))
def test_what_a_construction_counts_as_out_of_reach_is_confirmed(seed: int) -> None:
    """Zeros, few items, and entries that are exactly an end of what their items reach."""
    target = draw(6, 6, seed=seed).double() * (draw(6, 6, seed=seed + 9) > 0)
    for width in (6, 12, 30):
        ticket = st.construct_linear(target, hidden_width=width, seed=seed)
        assert failures(ticket, {"weight": target}) == []
        weights = ticket.materialize()
        reached = ordered_product(weights["second"].double(), weights["first"].double().T)
        again = st.construct_linear(reached, hidden_width=width, seed=seed, assignment="equal")
        assert failures(again, {"weight": reached}) == []
        network = FeedForward([target, target.T], [None, None])
        ticket = st.construct_feedforward(network, hidden_width=2 * width, seed=seed)
        assert failures(ticket, network.state_dict()) == []


def test_rounding_decides_at_the_end_of_what_many_items_reach_however_few_the_others_are() -> None:
    """The ends are the sums of all positive items, rounded once; one input has nearly all units, the other one."""
    product = plan_linear(torch.zeros(3, 2), 2000, "theory").products["product"].product
    owners = torch.tensor([0] * 1999 + [1])
    masks = (st.owner_mask(product.blocked.shape, product.blocked.unit_axis, owners), st.FullMask(product.free.shape))
    drawn = zip((product.blocked, product.free), masks, strict=True)
    ticket = st.Ticket(seed=0, tensors=[st.RandomTensor(name=m.name, mask=mask, scale=m.scale) for m, mask in drawn])
    weights = ticket.materialize()
    items = weights["second"].double()[:, None] * weights["first"].double().T  # (outputs, inputs, units)
    ends = torch.tensor([[math.fsum(sums) for sums in of] for of in items.clamp(min=0).tolist()], dtype=torch.float64)
    for beyond, surely, perhaps in ((0.0, False, True), (1e-9, True, True), (-1e-9, False, False)):
        found = _out_of_reach(ticket, Wanted(product, ends + beyond))
        assert [part.unique().tolist() for part in found] == [[surely], [perhaps]]


def test_key_width_is_the_tensors_own() -> None:
    """Scores are divided by its root, so masks for 2 W_QK look right where the ticket says four times the width."""
    target = random_attention(1, 3, 3, bias=False, seed=0)
    doubled = Attention(2 * target.query, target.key, target.value, target.output)
    ticket = st.construct_attention(target, key_width=60, value_width=60)
    forgery = forged(
        st.construct_attention(doubled, key_width=60, value_width=60),
        settings={"key_width": 240},
        certificate=replace(ticket.certificate, error=ticket.certificate.error * 2),
    )
    (failure,) = failures(forgery, target.state_dict())
    assert failure == "the ticket's architecture.key_width is 240, the masks and the target give 60"
    (failure,) = failures(forged(forgery, settings={"key_width": 60}), target.state_dict())
    assert "the masks and the target give" in failure


@pytest.mark.parametrize("tensors", ["kept", "left out"])
def test_no_part_of_the_target_can_be_left_out(tensors: str) -> None:
    def cut(name: str, gone: str, settings: dict[str, Any]) -> list[str]:
        ticket, target = constructed()[name]
        kept = [t for t in ticket.tensors.values() if tensors == "kept" or not t.name.startswith(gone)]
        return failures(forged(ticket, tensors=kept, settings=settings), target)

    blocks = constructed()["transformer"][0].architecture["blocks"]
    told = [
        cut("attention", "head.1.", {"n_heads": 1}),
        cut("feedforward", "layer.1.", {"hidden_widths": [48]}),
        cut("transformer", "block.1.", {"blocks": blocks[:1]}),
    ]
    if tensors == "kept":
        assert told[0] == ["the ticket's architecture.n_heads is 1, the masks and the target give 2"]
        assert told[1] == ["the ticket's architecture.hidden_widths is [48], the masks and the target give [48, 48]"]
        assert told[2][0].startswith("the ticket's architecture.blocks is [{")
    else:
        missing = ("head.1.key", "layer.1.first", "block.1.attention.head.0.key")
        assert told == [[f"the ticket has no tensor {name}, but the target needs one."] for name in missing]


@pytest.mark.parametrize("said", [1, [], None, {"attention": 1}])
def test_blocks_may_be_called_anything_and_are_refused(said: Any) -> None:
    ticket, target = constructed()["transformer"]
    (failure,) = failures(forged(ticket, settings={"blocks": [said, said]}), target)
    assert failure.startswith("the ticket's architecture.blocks.0")


def test_tensors_must_be_those_the_target_needs() -> None:
    ticket, target = constructed()["feedforward"]
    more = [*ticket.tensors.values(), st.RandomTensor(name="layer.2.first", mask=st.FullMask((2, 2)))]
    (failure,) = failures(forged(ticket, tensors=more), target)
    assert failure == "the ticket has a tensor layer.2.first, but the target has none of that name."
    wide = [replace(t, mask=st.FullMask((3, 50))) if t.name == "layer.0.second" else t for t in more[:-1]]
    (failure,) = failures(forged(ticket, tensors=wide), target)
    assert failure == "layer.0.second has shape (3, 50); for this target it must be (3, 48)."


def test_no_tensor_of_the_target_is_passed_over() -> None:
    """A ticket of a bare matrix does not stand for a layer with a bias."""
    layer = nn.Linear(3, 2)
    ticket = st.construct_linear(layer.weight, hidden_width=48)
    certificate = replace(ticket.certificate, target_sha256=digest_of_tensors(layer.state_dict()))
    (failure,) = failures(forged(ticket, certificate=certificate), layer.state_dict())
    assert "the ticket's architecture.bias is None, the masks and the target give True" in failure
    (failure,) = failures(
        forged(ticket, certificate=certificate, architecture={**ticket.architecture, "bias": True}), layer.state_dict()
    )
    assert "the ticket has no dense tensor bias, but the target has one" in failure


@pytest.mark.parametrize("name", KINDS)
def test_a_target_with_one_more_tensor_is_another_one(name: str) -> None:
    ticket, target = constructed()[name]
    target = {**target, "extra": torch.ones(1)}
    certificate = replace(ticket.certificate, target_sha256=digest_of_tensors(target))
    (failure,) = failures(forged(ticket, certificate=certificate), target)
    assert "the target has a tensor extra, which the ticket does not stand for" in failure or name == "torch"


@pytest.mark.parametrize("heads", [0, 3])
def test_heads_of_a_torch_attention_must_divide_it(heads: int) -> None:
    ticket, target = constructed()["torch"]
    tensors = [replace(ticket.tensors["head.0.query"], name=f"head.{j}.query") for j in range(heads)]
    (failure,) = failures(forged(ticket, tensors=tensors), target)
    assert failure == f"the ticket has {heads} heads, which a target of width 4 cannot have."


def biased_transformer() -> Transformer:
    attention = random_attention(1, 2, 2, bias=True, seed=0)
    network = FeedForward([draw(3, 2, seed=0), draw(2, 3, seed=1)], [draw(3, seed=2), draw(2, seed=3)])
    return Transformer([Block(attention, network), Block(attention, FeedForward([draw(2, 2, seed=4)]))])


@pytest.mark.parametrize("name", ["layer", "feedforward", "attention", "merged", "torch", "transformer"])
def test_biases_must_be_the_targets(name: str) -> None:
    ticket, target = constructed()[name]
    if name == "transformer":
        model = biased_transformer()
        ticket = st.construct_transformer(model, key_width=24, value_width=24, hidden_width=24)
        target = model.state_dict()
        assert set(ticket.dense) == {
            "block.0.attention.output_bias",
            "block.0.feedforward.layer.0.bias",
            "block.0.feedforward.layer.1.bias",
            "block.1.attention.output_bias",
        }
    assert failures(ticket, target) == []
    dense = list(ticket.dense.values())
    for i, bias in enumerate(dense):
        for shift in (100.0, 1e-6, float("nan")):
            value = bias.value.clone()
            value[-1] += shift
            shifted = st.DenseTensor(name=bias.name, value=value)
            (failure,) = failures(forged(ticket, dense=[*dense[:i], shifted, *dense[i + 1 :]]), target)
            assert failure.startswith(f"{bias.name} is not the target's: entries differ by up to ")
        short = st.DenseTensor(name=bias.name, value=bias.value[:1])
        (failure,) = failures(forged(ticket, dense=[*dense[:i], short, *dense[i + 1 :]]), target)
        assert failure == f"{bias.name} has shape (1,), the target's {tuple(bias.value.shape)}."
        (failure,) = failures(forged(ticket, dense=dense[:i] + dense[i + 1 :]), target)
        assert failure == f"the ticket has no dense tensor {bias.name}, but the target has one."


@pytest.mark.parametrize(("name", "added"), [("linear", "bias"), ("matrix", "layer.0.bias")])
def test_a_target_without_biases_makes_none(name: str, added: str) -> None:
    ticket, target = constructed()[name]
    dense = [st.DenseTensor(name=added, value=torch.full((2,), 100.0))]
    (failure,) = failures(forged(ticket, dense=dense), target)
    assert failure == f"the ticket has a dense tensor {added}, but the target has none of that name."


def test_a_merged_bias_may_round_otherwise() -> None:
    """Where the value bias is multiplied out, another machine adds in another order."""
    ticket, target = constructed()["torch"]
    target = {name: draw(*tensor.shape, seed=1).float() for name, tensor in target.items()}
    module = nn.MultiheadAttention(4, 2)
    module.load_state_dict(target)
    ticket = st.construct_attention(module, key_width=48, value_width=48)
    bias = ticket.dense["output_bias"].value
    near = st.DenseTensor(name="output_bias", value=torch.nextafter(bias, torch.full_like(bias, 9.0)))
    assert not torch.equal(near.value, bias)
    assert failures(forged(ticket, dense=[near]), target) == []


@pytest.mark.parametrize("mask", [st.FullMask((48, 2)), st.BlockMask((48, 2), 1, (1,) + (0,) * 47)])
def test_units_that_keep_several_inputs_are_refused(mask: st.FullMask | st.BlockMask) -> None:
    """What a ReLU makes of a sum is not what it makes of the terms, so neither form of the network can be split."""
    ticket, target = constructed()["feedforward"]
    tensors = [replace(t, mask=mask) if t.name == "layer.0.first" else t for t in ticket.tensors.values()]
    odd = forged(ticket, tensors=tensors)
    refusal = f"layer.0.first needs a mask that keeps one input per row; its mask is of kind '{mask.kind}'"
    (failure,) = failures(odd, target)
    assert refusal in failure
    with pytest.raises(StrongTicketError, match=refusal):
        odd.build("merged")
    odd.build("literal")


@pytest.mark.parametrize("form", ["literal", "merged"])
@pytest.mark.parametrize("name", ["feedforward", "attention"])
def test_the_network_does_not_write_into_the_ticket(name: str, form: Form) -> None:
    ticket, _ = constructed()[name]
    identity, network = ticket.identity, ticket.build(form, dtype=torch.float64)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(1)
    assert ticket.identity == identity


def test_another_target_is_named() -> None:
    ticket, target = constructed()["linear"]
    (failure,) = failures(ticket, {"weight": target["weight"] + 1})
    assert failure.startswith("the target has the right shapes but other names, types or numbers (SHA-256 ")
    (failure,) = failures(ticket, {"weight": target["weight"][:, :-1].clone()})
    assert failure.startswith(f"the target does not fit the ticket: it has weight ({len(target['weight'])}, ")


def test_another_linear_of_the_same_shape_fits_with_other_numbers() -> None:
    torch.manual_seed(0)
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    ticket = st.construct_linear(first, hidden_width=128)
    assert repr(st.verify(ticket, first)) == "Verification(ok)"
    (failure,) = st.verify(ticket, second).failures
    assert failure.startswith("the target has the right shapes but other names, types or numbers (SHA-256 ")
    assert repr(st.verify(ticket, second)) == f"Verification(failed: {failure})"
    (failure,) = st.verify(ticket, nn.Linear(3, 4)).failures
    assert failure.startswith("the target does not fit the ticket: it has weight (4, 3), bias (4,)")


@pytest.mark.parametrize(
    "architecture",
    [
        {"family": []},
        {"family": "transformer", "blocks": [1]},
        {"family": "transformer", "blocks": []},
        {"family": "linear"},
    ],
)
def test_hostile_architectures_are_refused(architecture: dict[str, object]) -> None:
    ticket, target = constructed()["attention"]
    data = edited(ticket.to_bytes(), lambda d: d["content"].update(architecture=architecture))
    hostile = st.Ticket.from_bytes(data)
    with pytest.raises(StrongTicketError):
        recertify(hostile, target)
    if architecture.get("blocks") != []:
        with pytest.raises(StrongTicketError):
            hostile.build()


def test_what_cannot_be_certified_is_said() -> None:
    with pytest.raises(StrongTicketError, match="family 'test' are not constructed from a target"):
        recertify(small_ticket(), {})
    ticket, _ = constructed()["attention"]
    with pytest.raises(StrongTicketError, match="the target does not fit a ticket of family 'attention'"):
        recertify(ticket, {"weight": torch.ones(2, 2)})
    with pytest.raises(StrongTicketError, match="has no certificate"):
        recertify(st.Ticket(seed=0, tensors=[]), {})
