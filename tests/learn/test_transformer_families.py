"""A search in each of today's families: roles, tickets, and the page that says what became of them."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers", reason="the families are made by transformers' configurations")

from transformer_families import FAMILIES

import strongticket as st
from strongticket.files import Json
from strongticket.learn.hidden import Hidden
from strongticket.learn.probe import own_inputs
from strongticket.learn.tensors import ModelTensor
from strongticket.tickets.from_bits import load_bits
from strongticket.tickets.fused import Cut, Role

PAGE = Path(__file__).parents[2] / "docs" / "searched-families.md"
EVERY_FAMILY = pytest.mark.parametrize("family", FAMILIES)


def numbers(output: Any) -> Tensor:
    """All float tensors of an output in a row."""
    if isinstance(output, Tensor):
        return output.flatten().float()
    values = output.values() if hasattr(output, "values") else output if isinstance(output, tuple) else ()
    found = [numbers(value) for value in values if isinstance(value, Tensor | tuple)]
    return torch.cat(found) if found else torch.zeros(0)


def loss(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
    return numbers(model(**batch)).square().mean()


@cache
def searched(family: str) -> Hidden:
    """A search of two steps; it is what all tests of a family look at."""
    model = FAMILIES[family]()
    inputs = own_inputs(model)
    assert inputs is not None, "the check needs inputs"
    return st.search(model, [inputs] * 2, loss=loss, steps=2)


@EVERY_FAMILY
def test_a_ticket_brings_every_weight_back_to_the_last_bit(family: str) -> None:
    hidden, fresh = searched(family), FAMILIES[family]()
    st.load_ticket(fresh, st.Ticket.from_bytes(hidden.to_ticket().to_bytes()))
    parameters = dict(fresh.named_parameters(remove_duplicate=False))
    for t in hidden.tensors:
        for place, value in zip(t.places, t.values(hidden.model), strict=True):
            assert torch.equal(t.tensor.of(parameters[place].detach()), value), t.name
    inputs = own_inputs(fresh)
    assert inputs is not None
    with torch.no_grad():
        found, expected = numbers(fresh(**inputs)), numbers(hidden.model(**inputs))
    # The same weights elsewhere in memory may be added up otherwise, and torch has a faster way for its own modules.
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * expected.abs().max().item())


@EVERY_FAMILY
def test_outputs_do_not_move_with_queries_times_64_and_keys_over_64(family: str) -> None:
    """With other numbers than the check's own: those of the family's initialization, enlarged."""
    model, tensors = FAMILIES[family](), [hidden.tensor for hidden in searched(family).tensors]
    assert {t.role for t in tensors} >= {"query", "key", "value"}
    inputs = own_inputs(model)
    assert inputs is not None

    def outputs(**factors: float) -> Tensor:
        changed = FAMILIES[family]()
        with torch.no_grad():
            for name, parameter in changed.named_parameters():
                parameter.mul_(0 if "bias" in name else 3 if parameter.dim() > 1 else 1)
            for tensor in tensors:
                if tensor.role in factors:
                    _multiply(changed.get_parameter(tensor.parameter), tensor, factors[tensor.role])
            return numbers(changed(**inputs))

    before = outputs()
    largest = before.abs().max()
    normed = any("no effect" in hidden.tensor.note for hidden in searched(family).tensors)
    assert normed == (family in ("Qwen3", "Qwen3-MoE", "Gemma 3"))
    # A norm adds a small number to the variance, which counts once that is 64 times 64 smaller.
    assert (outputs(query=64, key=1 / 64) - before).abs().max() <= (0.1 if normed else 1e-4) * largest
    assert (outputs(query=64, value=1 / 64) - before).abs().max() > 0.01 * largest
    assert (outputs(key=64, value=1 / 64) - before).abs().max() > 0.01 * largest


def _multiply(parameter: Tensor, tensor: ModelTensor, factor: float) -> None:
    if tensor.cut is None:
        parameter.mul_(factor)
    else:
        tensor.cut.put(parameter, tensor.part, factor * tensor.cut.of(parameter, tensor.part))


@EVERY_FAMILY
def test_queries_and_keys_have_their_scale_and_every_tensor_a_fan_in(family: str) -> None:
    for hidden in searched(family).tensors:
        tensor = hidden.tensor
        if tensor.role in ("query", "key"):
            assert tensor.key_width == 8, tensor.name
            assert hidden.scale == pytest.approx(8**0.25 * tensor.std), tensor.name
        if len(tensor.shape) == 2 and tensor.group != "embeddings":
            assert {tensor.fan_in, tensor.fan_out} == {*tensor.shape}, tensor.name


def test_mixtrals_experts_are_matrices_by_name() -> None:
    tensors = {hidden.name: hidden.tensor for hidden in searched("Mixtral").tensors}
    up = tensors["model.layers.0.mlp.experts.gate_up_proj.3.up"]
    assert (up.shape, up.fan_in, up.fan_out, up.role) == ((48, 32), 32, 48, "up")
    down = tensors["model.layers.0.mlp.experts.down_proj.0"]
    assert (down.shape, down.fan_in, down.role) == ((32, 48), 48, "down")


def test_experts_that_are_stored_the_other_way_round() -> None:
    tensors = {hidden.name: hidden.tensor for hidden in searched("GPT-OSS").tensors}
    fused = tensors["model.layers.0.mlp.experts.gate_up_proj.3"]
    # It adds 1 to what goes up, so that gate and up cannot be told apart by a factor.
    assert (fused.shape, fused.fan_in, fused.fan_out) == ((32, 96), 32, 96)
    assert tensors["model.layers.0.mlp.experts.down_proj.0"].fan_in == 48


@pytest.mark.parametrize("family", ["Phi-3", "GPT-NeoX", "Mixtral"])
def test_what_is_taken_apart_runs_from_bits(family: str) -> None:
    ticket = st.hide(FAMILIES[family](), st.Policy(init="sign"), seed=0).to_ticket()
    floats, bits = st.load_ticket(FAMILIES[family](), ticket), load_bits(FAMILIES[family](), ticket)
    inputs = own_inputs(floats)
    assert inputs is not None
    with torch.no_grad():
        expected = numbers(floats(**inputs))
        torch.testing.assert_close(numbers(bits(**inputs)), expected, rtol=0, atol=1e-5 * expected.abs().max().item())


def test_longformers_global_queries_and_keys_are_scaled() -> None:
    rows = {row["name"]: row for row in searched("Longformer").describe()}
    prefix = "encoder.layer.0.attention.self"
    assert rows[f"{prefix}.query_global.weight"]["role"] == "query"
    assert rows[f"{prefix}.key_global.weight"]["role"] == "key"


# --- The page --------------------------------------------------------------------------------------------------------


def test_the_page_is_what_was_found() -> None:
    """To bring it up to date, write `table()` between its marks."""
    written = PAGE.read_text()
    (found,) = re.findall(r"<!-- families -->\n(.*?)<!-- /families -->", written, re.DOTALL)
    assert found == table()


def table() -> str:
    lines = ["| Family | Masked | Frozen | Why |", "| --- | --- | --- | --- |"]
    for family in FAMILIES:
        hidden = searched(family)
        lines.append(f"| {family} | {_masked(hidden)} | {_frozen(hidden)} | {_why(hidden)} |")
    return "\n".join(lines) + "\n"


def _masked(hidden: Hidden) -> str:
    found: dict[str, list[str]] = {}
    for row in hidden.describe():
        if row["treatment"] == "masked":
            found.setdefault(row["group"], []).append(row["role"] or "")
    tied = any(t.tensor.group == "embeddings" and len(t.places) > 1 for t in hidden.tensors)
    return "; ".join(_group(group, roles, tied) for group, roles in found.items())


def _group(group: str, roles: list[str], tied: bool) -> str:
    known = [role for role in get_args(Role) if role in roles]
    words = {"mlp": "MLP", "embeddings": "embeddings, tied to the head" if tied else "embeddings"}.get(group, group)
    return f"{words} ({', '.join(known)})" if known else words


def _frozen(hidden: Hidden) -> str:
    constants: dict[str, set[float]] = {}
    for row in hidden.describe():
        if row["distribution"] == "constant":
            group = row["group"] if "bias" not in row["name"].rpartition(".")[2] else "biases"
            constants.setdefault(group, set()).add(row["scale"])
    return (
        "; ".join(f"{group} at {' or '.join(f'{v:g}' for v in sorted(v))}" for group, v in constants.items()) or "none"
    )


def _why(hidden: Hidden) -> str:
    said = [*_cuts(hidden.architecture["fused"])]
    if any("no effect" in tensor.tensor.note for tensor in hidden.tensors):
        said.append("Q/K scale without effect: norms follow")
    return "; ".join(dict.fromkeys(said)) or "query and key by name, checked"


def _cuts(fused: dict[str, Json]) -> Iterator[str]:
    for parameter, written in fused.items():
        label = next(part for part in reversed(parameter.split(".")) if part != "weight")
        if isinstance(written, int):
            yield f"`{label}` is query, key, value"
            continue
        cut = Cut(written["axis"], tuple(map(tuple, written["parts"])), written["blocks"], written["stack"])
        parts = ", ".join(f"{name} ({width})" for name, width in cut.parts if name)
        times = f", {cut.blocks} times" if cut.blocks > 1 else ""
        experts = f"{cut.stack} experts" + (", each " if parts else "") if cut.stack else ""
        yield f"`{label}` is {experts}{parts}{times}"
