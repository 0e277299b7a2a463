"""Parameters that hold several tensors: every way of taking them apart can be undone."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strongticket.tickets.fused import Cut

NAMES = ("query", "key", "value", "gate", "up")


@st.composite
def cuts(draw: st.DrawFn) -> tuple[Cut, torch.Tensor]:
    """A cut and a parameter of its shape, all of whose numbers differ."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    parts = tuple((name, draw(st.integers(1, 3))) for name in names)
    cut = Cut(draw(st.integers(0, 1)), parts, draw(st.integers(1, 3)), draw(st.sampled_from((0, 1, 3))))
    shape = [draw(st.integers(1, 3))] * 2
    shape[cut.axis] = cut.blocks * sum(width for _, width in parts)
    shape = [cut.stack, *shape] if cut.stack else shape
    return cut, torch.arange(float(torch.Size(shape).numel())).view(shape)


@given(cuts())
def test_parts_are_all_there_is_and_come_together_again(drawn: tuple[Cut, torch.Tensor]) -> None:
    cut, parameter = drawn
    tensors = [cut.of(parameter, name) for name in cut.names()]
    assert all(tensor.dim() == 2 for tensor in tensors)
    assert sorted(number for tensor in tensors for number in tensor.flatten().tolist()) == parameter.flatten().tolist()
    assert torch.equal(cut.joined(tensors), parameter)
    written = torch.zeros_like(parameter)
    for name, tensor in zip(cut.names(), tensors, strict=True):
        cut.put(written, name, tensor)
    assert torch.equal(written, parameter)


@given(cuts())
def test_a_ticket_says_how(drawn: tuple[Cut, torch.Tensor]) -> None:
    cut, parameter = drawn
    assert Cut.from_json(json.loads(json.dumps(cut.to_json())), parameter.shape) == cut


def test_rows_of_heads_that_lie_side_by_side() -> None:
    """Two heads of width 2, each with its query, key and value: what the gather means."""
    cut = Cut(0, (("query", 2), ("key", 2), ("value", 2)), blocks=2)
    assert cut.of(torch.arange(12.0)[:, None], "key").flatten().tolist() == [2, 3, 8, 9]


GOOD = {"axis": 0, "blocks": 2, "stack": 0, "parts": [["query", 1], ["value", 2]]}


@pytest.mark.parametrize(
    "found",
    [
        None,
        2,
        True,
        "0",
        [0],
        {},
        {**GOOD, "more": 1},
        {**GOOD, "axis": 2},
        {**GOOD, "axis": False},
        {**GOOD, "blocks": 0},
        {**GOOD, "blocks": 3},
        {**GOOD, "stack": -1},
        {**GOOD, "stack": 2},
        {**GOOD, "parts": []},
        {**GOOD, "parts": [["query", 0], ["value", 3]]},
        {**GOOD, "parts": [["query", 1], ["query", 2]]},
        {**GOOD, "parts": [["a.b", 1], ["value", 2]]},
        {**GOOD, "parts": [["", 3]]},
        {**GOOD, "parts": [["query", 1, 1], ["value", 2]]},
        {**GOOD, "parts": [["query", 1.0], ["value", 2]]},
        {**GOOD, "parts": {"query": 1, "value": 2}},
        {**GOOD, "parts": [[chr(97 + i), 1] for i in range(9)]},
    ],
    ids=str,
)
def test_what_is_no_cut_of_a_parameter_is_refused(found: Any) -> None:
    assert Cut.from_json(GOOD, (6, 4)).blocks == 2
    with pytest.raises(ValueError, match=r"must be an axis or a cut|does not hold"):
        Cut.from_json(found, (6, 4))
