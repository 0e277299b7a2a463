"""A ticket in a model's place: close to it, the same in both modes, and within each part's certificate."""

import copy
import pickle

import pytest
import torch
from torch import nn

import strongticket
from strongticket import Ticket
from strongticket.errors import StrongTicketError
from strongticket.pretrained import attach, construct_pretrained
from strongticket.pretrained.parts import Mode
from tests.pretrained.small_models import FAMILIES, inputs, make_bert, make_gpt2, make_vit, output_of, randomize, small
from tests.small_tickets import edited, small_ticket


@pytest.mark.parametrize("what", ["attention", "attention+mlp"])
@pytest.mark.parametrize("family", FAMILIES)
def test_literal_and_merged_are_the_same_function_near_the_original(family: str, what: str) -> None:
    model = copy.deepcopy(small(family)).double()
    ticket = construct_pretrained(model, items=12, what=what)
    batch = inputs(family)
    original, merged, literal = (
        output_of(m, batch) for m in (model, attach(model, ticket), attach(model, ticket, "literal"))
    )
    torch.testing.assert_close(literal, merged, rtol=0, atol=1e-10)
    # The MLP's sums have 12 items only on average, and some have very few.
    assert (merged - original).abs().max() < (0.1 if what == "attention" else 1.0) * original.abs().max()
    assert not torch.equal(merged, original)


def test_more_items_come_closer() -> None:
    errors = []
    for items in (8, 16, 24):
        merged = attach(small("bert"), construct_pretrained(small("bert"), items=items))
        errors.append((output_of(merged, inputs("bert")) - output_of(small("bert"), inputs("bert"))).abs().max().item())
    assert errors[0] > 5 * errors[1] > 25 * errors[2], errors


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_attention_implementation_will_do(family: str, implementation: str) -> None:
    model = copy.deepcopy(small(family))
    model.set_attn_implementation(implementation)
    ticket = construct_pretrained(model, items=8)
    expected = output_of(attach(small(family), ticket), inputs(family))
    torch.testing.assert_close(output_of(attach(model, ticket), inputs(family)), expected, rtol=0, atol=1e-4)


def test_a_causal_model_generates_with_its_cache() -> None:
    model, batch = small("gpt2"), {"input_ids": torch.tensor([[5, 9, 2]])}
    attached = attach(model, construct_pretrained(model, items=16))
    settings = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
    cached, plain = (attached.generate(**batch, use_cache=cache, **settings) for cache in (True, False))
    assert cached.tolist() == plain.tolist()


def test_the_original_stays_and_shares_what_is_kept() -> None:
    model = copy.deepcopy(small("bert"))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    attached = attach(model, construct_pretrained(model, items=4))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    weight = model.embeddings.word_embeddings.weight
    assert attached.embeddings.word_embeddings.weight.data_ptr() == weight.data_ptr()
    assert type(attached) is type(model)
    assert not attached.training


def test_the_original_does_not_follow_what_is_done_to_the_copy() -> None:
    model, batch = copy.deepcopy(small("gpt2")), inputs("gpt2")
    expected, frozen = output_of(model, batch), model.transformer.wpe.weight
    frozen.requires_grad_(False)
    ticket = construct_pretrained(model, items=4)
    attached = attach(model, ticket)
    assert [name for name, p in model.named_parameters() if not p.requires_grad] == ["transformer.wpe.weight"]
    assert not attached.transformer.wpe.weight.requires_grad
    assert attached.transformer.wte.weight.requires_grad
    assert attached.lm_head.weight is attached.transformer.wte.weight, "tied weights stay tied"
    attached.double().requires_grad_(False)
    attach(model, ticket).to("meta")
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert {t.device.type for t in (*model.parameters(), *model.buffers())} == {"cpu"}
    assert all(p.requires_grad for p in model.parameters() if p is not frozen)
    assert torch.equal(output_of(model, batch), expected)


@pytest.mark.parametrize("mode", ["merged", "literal"])
def test_the_model_does_not_write_into_the_ticket(mode: Mode) -> None:
    model = copy.deepcopy(small("bert")).double()
    ticket = construct_pretrained(model, items=4, what="attention+mlp")
    identity, attached = ticket.identity, attach(model, ticket, mode)
    with torch.no_grad():
        for tensor in (*attached.encoder.parameters(), *attached.encoder.buffers()):
            tensor.add_(1)
    assert ticket.identity == identity


@pytest.mark.parametrize("model", [make_vit(qkv_bias=False), make_gpt2(scale_attn_by_inverse_layer_idx=True)])
def test_odd_configurations(model: nn.Module) -> None:
    """No query bias; scores that each layer scales in its own way."""
    model = randomize(model)
    family = model.config.model_type
    original = output_of(model, inputs(family))
    merged = output_of(attach(model, construct_pretrained(model, items=16)), inputs(family))
    assert (merged - original).abs().max() < 0.02 * original.abs().max()


def test_tickets_of_other_models_are_refused_by_hash() -> None:
    ticket = construct_pretrained(small("bert"), items=4)
    assert ticket.certificate is not None
    other = randomize(make_bert(), seed=9)
    with pytest.raises(
        StrongTicketError, match=f"whose weights have SHA-256 {ticket.certificate.target_sha256}; this bert has"
    ):
        attach(other, ticket)
    with pytest.raises(StrongTicketError, match="`strongticket construct --model`; this one's family is 'test'"):
        attach(other, small_ticket())
    with pytest.raises(ValueError, match="mode must be one of merged, literal; got 'wide'"):
        attach(small("bert"), ticket, "wide")  # type: ignore[arg-type]
    with pytest.raises(StrongTicketError, match="expected a linear map"):
        attach(attach(small("bert"), ticket), ticket)


def test_the_same_weights_scaled_otherwise_are_another_model() -> None:
    """GPT-2 can leave its scores unscaled, which no weight shows."""
    ticket = construct_pretrained(randomize(make_gpt2(scale_attn_weights=False)), items=4)
    assert ticket.architecture == construct_pretrained(small("gpt2"), items=4).architecture
    with pytest.raises(StrongTicketError, match=r"this gpt2 has \w{64} .the attention's scaling is included"):
        attach(small("gpt2"), ticket)


@pytest.mark.parametrize(
    "change", [{"n_heads": 9}, {"items": "many"}, {"d_model": 5}, {"what": "attention+mlp"}, {"what": 3}]
)
def test_hostile_architectures_are_refused(change: dict[str, object]) -> None:
    ticket = construct_pretrained(small("bert"), items=4)
    hostile = Ticket.from_bytes(edited(ticket.to_bytes(), lambda d: d["content"]["architecture"].update(change)))
    with pytest.raises(StrongTicketError):
        attach(small("bert"), hostile)


def test_weights_drawn_otherwise_are_refused() -> None:
    """The merged form draws single weights of a matrix, the literal one all of it: both must draw alike."""
    ticket = construct_pretrained(small("bert"), items=4)

    def redraw(description: dict) -> None:
        description["content"]["tensors"][1]["distribution"] = "sign"

    with pytest.raises(StrongTicketError, match=r"head\.0\.key must be drawn uniformly; the ticket says 'sign'\."):
        attach(small("bert"), Ticket.from_bytes(edited(ticket.to_bytes(), redraw)))


@pytest.mark.parametrize("mode", ["merged", "literal"])
def test_what_attach_gives_can_be_copied_pickled_and_moved(mode: Mode) -> None:
    model = small("bert")
    attached = attach(model, construct_pretrained(model, items=4, what="attention+mlp"), mode)
    expected = output_of(attached, inputs("bert"))
    for again in (copy.deepcopy(attached), pickle.loads(pickle.dumps(attached))):
        assert torch.equal(output_of(again, inputs("bert")), expected)
    moved = copy.deepcopy(attached).double()
    biases = [module.bias for module in moved.modules() if getattr(module, "bias", None) is not None]
    assert {bias.dtype for bias in biases} == {torch.float64}
    torch.testing.assert_close(output_of(moved, inputs("bert")), expected.double(), rtol=0, atol=1e-4)


def test_attach_is_public() -> None:
    assert strongticket.attach is attach


def test_build_names_attach() -> None:
    ticket = construct_pretrained(small("bert"), items=4)
    with pytest.raises(
        StrongTicketError, match=r"parts of a pretrained model: load it and call attach\(model, ticket\)"
    ):
        ticket.build()
