import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from search_models import (
    IMAGES,
    TOKENS,
    QkvAttention,
    TorchAttention,
    hugging_face_gpt2,
    nano,
    output_of,
    search,
    vision_transformer,
)
from torch import nn
from typer.testing import CliRunner

import strongticket as st
from strongticket.cli.main import app
from strongticket.errors import StrongTicketError
from strongticket.learn.hide import hide
from strongticket.learn.policy import Policy
from strongticket.models.gpt2 import GPT2
from strongticket.tickets.restore import load_ticket
from strongticket.tickets.ticket import Ticket

Maker = Callable[[], nn.Module]
MAKERS: dict[str, Maker] = {
    "ours": lambda: nano(output_gain=4.0),
    "ours with biases": lambda: nano(output_gain=4.0, bias=True, tied=False),
    "hugging face": hugging_face_gpt2,
    "qkv": lambda: vision_transformer(QkvAttention),
    "torch attention": lambda: vision_transformer(TorchAttention),
}
POLICIES = {
    "masked": Policy(),
    "trained": Policy(embeddings="trained", norms="trained", biases="trained", scope="global"),
    "frozen": Policy(attention="frozen", head="frozen", signed=True, init="sign", rescale=True),
    "attention trained": Policy(attention="trained"),
}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_ticket_gives_the_searched_models_output_to_the_last_bit(make: Maker, policy: Policy) -> None:
    hidden = hide(make(), policy, seed=2**63)
    search(hidden, steps=2)
    ticket = Ticket.from_bytes(hidden.to_ticket({"steps": 2}).to_bytes())
    assert ticket.verify().ok
    expected = output_of(hidden.model)
    with torch.random.fork_rng():
        torch.manual_seed(1)  # a fresh module holds other numbers
        fresh = make()
    before = output_of(fresh)
    assert torch.equal(output_of(load_ticket(fresh, ticket)), expected)
    assert not torch.equal(before, expected)
    if type(fresh) is GPT2:
        assert torch.equal(output_of(ticket.build()), expected)
    assert ticket.strong == ("trained" not in (policy.embeddings, policy.attention))


def test_what_the_architecture_fixes_is_not_stored() -> None:
    assert dict(hide(nano(bias=True), Policy(), seed=0).to_ticket().dense) == {}
    stored = hide(vision_transformer(), Policy(), seed=0).to_ticket()
    constants = {name for name, _ in vision_transformer().named_parameters() if "norm" in name or "bias" in name}
    assert set(stored.dense) == constants
    assert stored.strong
    model = nano()
    torch.nn.init.constant_(model.final_norm.weight, 2.0)  # not what a GPT-2 starts with
    odd = hide(model, Policy(), seed=0)
    assert set(odd.to_ticket().dense) == {"final_norm.weight"}
    assert torch.equal(output_of(odd.to_ticket().build()), output_of(odd.model))


def test_what_is_not_stored_is_put_back_as_well() -> None:
    hidden, used = hide(nano(bias=True), Policy(), seed=0), nano(bias=True)
    for parameter in used.parameters():
        torch.nn.init.constant_(parameter, 0.5)
    assert torch.equal(output_of(load_ticket(used, hidden.to_ticket())), output_of(hidden.model))


def test_names_and_masks_in_the_ticket() -> None:
    hidden = hide(hugging_face_gpt2(), Policy(embeddings="frozen"), seed=0)
    ticket = hidden.to_ticket()
    assert ticket.architecture["class"].endswith("GPT2LMHeadModel")
    assert ticket.architecture["fused"] == {f"transformer.h.{i}.attn.c_attn.weight": 1 for i in range(2)}
    assert ticket.tensors["transformer.h.0.attn.c_attn.weight.query"].shape == (64, 64)
    assert ticket.tensors["transformer.wte.weight"].mask.kind == "ones"
    assert "lm_head.weight" not in ticket.tensors
    for name, supermask in hidden.supermasks.items():
        assert torch.equal(ticket.tensors[name].mask.to_bool(), supermask.mask)
    assert list(hide(vision_transformer(TorchAttention), Policy(), seed=0).to_ticket().tensors)[:5] == [
        "cls_token",
        "pos_embed",
        "patch_embed.weight",
        "blocks.0.attn.inner.in_proj_weight.query",
        "blocks.0.attn.inner.in_proj_weight.key",
    ]


def test_the_same_search_gives_the_same_ticket() -> None:
    identities = set()
    for _ in range(2):
        hidden = hide(nano(), Policy(), seed=3)
        search(hidden, steps=2)
        identities.add(hidden.to_ticket({"run": len(identities)}).identity)
    assert len(identities) == 1


def test_running_means_come_back() -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))

    hidden = hide(make(), Policy(), seed=0)
    for _ in range(3):
        hidden.model(IMAGES)
    loaded = load_ticket(make(), Ticket.from_bytes(hidden.to_ticket().to_bytes()))
    assert torch.equal(loaded.eval()(IMAGES), hidden.model.eval()(IMAGES))


@pytest.mark.parametrize("make", [MAKERS["ours"], MAKERS["hugging face"]], ids=["ours", "hugging face"])
def test_show_verify_and_export(make: Maker, tmp_path: Path) -> None:
    hidden = hide(make(), Policy(embeddings="trained"), seed=3)
    hidden.to_ticket({"loss": 5.0}).save(file := tmp_path / "found.ticket")
    for command in (["show"], ["show", "--all"], ["verify"], ["export", "--out", str(tmp_path / "plain")]):
        result = CliRunner().invoke(app, [command[0], str(file), *command[1:]])
        assert result.exit_code == 0, result.output
    shown = json.loads(CliRunner().invoke(app, ["show", str(file), "--json"]).stdout)
    assert shown["strong"] is False
    assert shown["kept"] == sum(int(supermask.mask.sum()) for supermask in hidden.supermasks.values())
    from safetensors.torch import load_file

    weights = load_file(tmp_path / "plain" / "weights.safetensors")
    query = (
        "blocks.0.attention.query.weight" if type(hidden.model) is GPT2 else "transformer.h.0.attn.c_attn.weight.query"
    )
    masked = hidden.tensors[[h.name for h in hidden.tensors].index(query)].tensor
    holder = hidden.model.get_submodule(masked.parameter.removesuffix(".weight"))
    assert torch.equal(weights[query], masked.of(holder.weight))


# --- What does not fit -----------------------------------------------------------------------------------------------


def ticket_of(make: Maker, **settings: Any) -> Ticket:
    return hide(make(), Policy(**settings), seed=0).to_ticket()


@pytest.mark.parametrize(
    ("make", "other", "message"),
    [
        (
            "hugging face",
            lambda: hugging_face_gpt2(n_inner=64),
            r"h\.0\.mlp\.c_fc\.weight is \(64, 64\) in this.*\(64, 256\) in",
        ),
        ("hugging face", lambda: hugging_face_gpt2(tie_word_embeddings=False), r"lm_head\.weight .* not in the ticket"),
        (
            "hugging face",
            vision_transformer,
            r"cls_token is \(1, 1, 32\) in this VisionTransformer and not in the ticket",
        ),
        ("hugging face", nano, r"tokens\.weight is \(256, 64\) in this GPT2 and not in the ticket"),
        ("qkv", lambda: vision_transformer(TorchAttention), r"blocks\.0\.attn\.inner\.in_proj_weight"),
        ("qkv", lambda: nn.Sequential(), "this Sequential has no cls_token, which the ticket has"),
        ("ours", lambda: nano(output_gain=2.0), r"ticket's GPT-2 has output_gain=4\.0, this one 2\.0"),
        ("ours", lambda: nano(output_gain=4.0, n_heads=4), "ticket's GPT-2 has n_heads=2, this one 4"),
        ("ours", lambda: GPT2(nano(output_gain=4.0).config, device="meta"), "create it on cpu or cuda"),
        (
            "ours",
            lambda: hide(nano(output_gain=4.0), Policy(), seed=0).model,
            r"parametrizations\.weight\.original.*not in the",
        ),
    ],
)
def test_another_module_is_refused_by_the_first_tensor_that_does_not_fit(make: str, other: Maker, message: str) -> None:
    ticket, module = ticket_of(MAKERS[make]), other()
    before = {name: p.clone() for name, p in module.named_parameters()}
    with pytest.raises(ValueError, match=message) as caught:
        load_ticket(module, ticket)
    assert "\n" not in str(caught.value)
    if not any(p.is_meta for p in before.values()):
        assert all(torch.equal(p, before[name]) for name, p in module.named_parameters())


def changed(ticket: Ticket, **architecture: Any) -> Ticket:
    return Ticket(
        seed=ticket.seed,
        tensors=ticket.tensors.values(),
        dense=ticket.dense.values(),
        architecture={**ticket.architecture, **architecture},
    )


def test_building_needs_a_family_that_says_how() -> None:
    with pytest.raises(
        StrongTicketError, match=r"found in a .*VisionTransformer; create one.*load_ticket\(model, ticket\)"
    ):
        ticket_of(vision_transformer).build()
    with pytest.raises(ValueError, match="build it in its literal form"):
        ticket_of(nano).build("merged")


@pytest.mark.parametrize(
    "config",
    [
        {"n_layers": 10**9},
        {"n_layers": 1},
        {"n_layers": 2.0},
        {"vocabulary": 2**62},
        {"vocabulary": 10**12},
        {"d_model": 128},
        {"n_heads": 0},
        {"bias": 1},
        {"tied": False},
        {"activation": "silu"},
        {"activation": ["gelu"]},
        {"norm_epsilon": "small"},
        {"norm_epsilon": None},
        {"output_gain": "loud"},
        {"unknown": 1},
    ],
    ids=str,
)
def test_settings_that_do_not_fit_the_tensors_are_refused(config: dict[str, Any]) -> None:
    ticket = ticket_of(nano)
    with pytest.raises(StrongTicketError, match="the ticket's tensors do not make a gpt2"):
        changed(ticket, config={**ticket.architecture["config"], **config}).build()


@pytest.mark.parametrize("config", [None, [], "nano", {}], ids=str)
def test_settings_of_the_wrong_kind_are_refused(config: Any) -> None:
    with pytest.raises(StrongTicketError, match="do not make a gpt2"):
        changed(ticket_of(nano), config=config).build()
    with pytest.raises(ValueError, match="ticket's GPT-2 has"):
        load_ticket(nano(), changed(ticket_of(nano), config=config))


@pytest.mark.parametrize(
    "fused", [None, [1], {"blocks.0.attn.qkv.weight": "0"}, {"pos_embed": 2}, {"norm.weight": 0}], ids=str
)
def test_fused_parts_of_the_wrong_kind_are_refused(fused: Any) -> None:
    with pytest.raises(ValueError, match=r"an axis or a cut|does not hold query and key and value|not in the ticket"):
        load_ticket(vision_transformer(), changed(ticket_of(vision_transformer), fused=fused))


def test_a_built_gpt2_is_on_the_dtype_asked_for() -> None:
    hidden = hide(nano(), Policy(), seed=0)
    double = hidden.to_ticket().build(dtype=torch.float64)
    assert {p.dtype for p in double.parameters()} == {torch.float64}
    assert not any(p.requires_grad for p in double.parameters())
    torch.testing.assert_close(double(TOKENS).float(), output_of(hidden.model))


def test_a_path_in_place_of_a_ticket_and_a_name_in_place_of_a_policy() -> None:
    for call in (lambda: st.load_ticket(nn.Linear(2, 1), "a.ticket"), lambda: st.verify("a.ticket")):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=r"ticket must be a Ticket; got 'a.ticket'. Read a file by Ticket.load"):
            call()
    with pytest.raises(ValueError, match=r"policy must be a Policy, such as .*; got 'sign'"):
        st.search(nn.Linear(2, 1), [torch.ones(1, 2)], policy="sign")  # type: ignore[arg-type]
