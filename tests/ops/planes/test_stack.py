import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from strongticket.ops.planes import LANES, pack, reference, stack
from strongticket.ops.rng import stream_of


@given(
    rows=st.lists(st.sampled_from([LANES, 2 * LANES]), max_size=3),
    last=st.integers(1, 40),
    levels=st.lists(st.integers(1, 15), min_size=4, max_size=4),
    drawn=st.booleans(),
)
def test_a_stack_is_the_matrix_packed_at_once(rows: list[int], last: int, levels: list[int], drawn: bool) -> None:
    generator = torch.Generator().manual_seed(last)
    signs = stream_of(3, "w") if drawn else None
    parts = [
        torch.randint(0 if drawn else -most, most + 1, (count, 70), generator=generator, dtype=torch.int8)
        for count, most in zip([*rows, last], levels, strict=False)
    ]
    whole, stacked = pack(torch.cat(parts), signs), stack([pack(part, signs) for part in parts])
    assert torch.equal(stacked.words, whole.words)
    assert torch.equal(reference.unpack(stacked), reference.unpack(whole))


def test_parts_that_do_not_fit_are_refused() -> None:
    ones = torch.ones(LANES, 5, dtype=torch.int8)
    for other in (pack(ones[:, :4]), pack(ones, stream_of(0, "w")), pack(ones[:3])):
        with pytest.raises(ValueError, match="equally many columns"):
            stack([other, pack(ones)])
