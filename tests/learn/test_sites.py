"""What is a query and a key, found out on modules that names alone would get wrong."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import strongticket as st
from strongticket.tickets.fused import Cut

WIDTH, HEADS = 8, 2
X = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(0))


class Attention(nn.Module):
    """Scaled dot products of what a function takes out of one fused map."""

    def __init__(self, taken: Callable[[Tensor], tuple[Tensor, ...]], outputs: int = 3 * WIDTH) -> None:
        super().__init__()
        self.num_heads, self.taken = HEADS, taken
        self.qkv, self.out = nn.Linear(WIDTH, outputs), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.taken(self.qkv(x))]
        return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


def side_by_side(y: Tensor) -> tuple[Tensor, ...]:
    return y.chunk(3, dim=-1)


def value_first(y: Tensor) -> tuple[Tensor, ...]:
    value, key, query = y.chunk(3, dim=-1)
    return query, key, value


def head_by_head(y: Tensor) -> tuple[Tensor, ...]:
    return tuple(part.flatten(-2) for part in y.unflatten(-1, (HEADS, -1)).chunk(3, dim=-1))


def shared(y: Tensor) -> tuple[Tensor, ...]:
    query, key, _ = y.chunk(3, dim=-1)
    return query, key, key


def model_of(taken: Callable[[Tensor], tuple[Tensor, ...]]) -> nn.Module:
    torch.manual_seed(0)
    return nn.ModuleDict({"attn": Attention(taken)})["attn"]


def roles(hidden: st.Hidden) -> dict[str, str | None]:
    return {row["name"]: row["role"] for row in hidden.describe() if len(row["shape"]) > 1}


@pytest.mark.parametrize(
    ("taken", "blocks", "order"),
    [
        (side_by_side, 1, ("query", "key", "value")),
        # Which is the query of two that are multiplied with each other nobody can tell, nor need.
        (value_first, 1, ("value", "query", "key")),
        (head_by_head, 2, ("query", "key", "value")),
    ],
)
def test_a_fused_map_is_taken_apart_as_the_module_does_it(
    taken: Callable[[Tensor], tuple[Tensor, ...]], blocks: int, order: tuple[str, ...]
) -> None:
    by_inputs = st.hide(model_of(taken), seed=0, inputs=X)
    by_batch = st.search(model_of(taken), [X] * 2, loss=lambda run, x: run(x).square().mean())
    for hidden in (by_inputs, by_batch):
        cut = Cut.from_json(hidden.architecture["fused"]["qkv.weight"], (3 * WIDTH, WIDTH))
        assert (cut.blocks, tuple(cut.names())) == (blocks, order)
        assert {row.get("note") for row in hidden.describe()} == {None}
        scales = {row["role"]: row["scale"] for row in hidden.describe() if row["name"].startswith("qkv.weight")}
        assert scales["query"] > 1.3 * scales["value"] < scales["key"]
        again = st.load_ticket(model_of(taken), hidden.to_ticket())
        assert torch.equal(again(X), hidden.model(X))


def test_where_nothing_can_be_run_names_decide_and_it_is_said() -> None:
    hidden = st.hide(model_of(head_by_head), seed=0)
    notes = {row["name"]: row.get("note") for row in hidden.describe()}
    assert notes["qkv.weight.query"] == "by its name, not checked: its inputs are unknown; pass some"
    assert notes["out.weight"] is None
    wrong = st.hide(model_of(side_by_side), seed=0, inputs=torch.zeros(3, 5, WIDTH + 1))
    assert wrong.describe()[0]["note"] == "by its name, not checked: it could not be run (RuntimeError)"


def test_a_name_that_does_not_tell_how_it_is_fused_needs_a_check() -> None:
    class InterleavedAttention(Attention):
        def __init__(self) -> None:
            super().__init__(head_by_head)
            self.query_key_value = self.qkv
            del self.qkv

        def forward(self, x: Tensor) -> Tensor:
            heads = [part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.taken(self.query_key_value(x))]
            return self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))

    with pytest.raises(ValueError, match=r"query_key_value.* a key: by its name, not checked: its inputs.*Policy\("):
        st.hide(InterleavedAttention(), seed=0)
    assert "query_key_value.weight.query" in roles(st.hide(InterleavedAttention(), seed=0, inputs=X))


def test_where_nothing_passes_the_search_stops_before_anything_changes() -> None:
    model = model_of(shared)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    line = (
        r"cannot tell which part of qkv\.weight \[24, 8\] is a query or a key: outputs change when queries are .*"
        r"Pass policy=Policy\(qk_scale=1\), which scales nothing and does not split the tensor\."
    )
    with pytest.raises(ValueError, match=line):
        st.hide(model, seed=0, inputs=X)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())

    def loss(run: nn.Module, x: Tensor) -> Tensor:
        return run(x).square().mean()

    with pytest.raises(ValueError, match=line):
        st.search(model, [X] * 2, loss=loss)
    whole = st.search(model, [X] * 2, loss=loss, policy=st.Policy(qk_scale=1))
    assert roles(whole) == {"qkv.weight": None, "out.weight": "output"}


def test_a_tensor_that_outputs_do_not_depend_on_cannot_be_checked() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn, self.spare_attn = model_of(side_by_side), model_of(side_by_side)

        def forward(self, x: Tensor) -> Tensor:
            return self.attn(x)

    hidden = st.hide(Unused(), seed=0, inputs=X)
    notes = {row["name"]: row.get("note") for row in hidden.describe()}
    # Both look alike, and so are checked together: what is right for one is right for its like.
    assert notes["attn.qkv.weight.query"] is None
    only = st.hide(nn.ModuleDict({"spare_attn": model_of(side_by_side)}), seed=0, inputs=lambda model: X)
    assert only.describe()[0]["note"] == "by its name, not checked: the outputs do not depend on it"


def test_the_module_and_torchs_generator_are_left_as_they_were() -> None:
    model = model_of(side_by_side).train()
    state = torch.get_rng_state()
    seen = []

    def run(copy: nn.Module) -> Tensor:
        seen.append(copy.training)
        return F.dropout(copy(X), training=copy.training) + torch.rand(())

    st.hide(model, seed=0, inputs=run)
    assert model.training
    assert set(seen) == {False}
    assert torch.equal(torch.get_rng_state(), state)
