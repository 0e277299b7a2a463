"""Causal attention and its gradient."""

import pytest
import torch
from torch import Tensor

from strongticket.learn.repeat import repeatable
from strongticket.models.causal_attention import causal_attention

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def plain(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    return scores.masked_fill(~torch.ones_like(scores, dtype=torch.bool).tril(), -torch.inf).softmax(-1) @ v


def with_gradients(attention: object, inputs: Tensor, upstream: Tensor) -> list[Tensor]:
    x = inputs.detach().requires_grad_()
    out = attention(*x.unbind(0))  # type: ignore[operator]
    out.backward(upstream.to(out.dtype))
    assert x.grad is not None
    return [out.detach(), x.grad]


def test_it_is_softmax_of_scores_over_what_came_before() -> None:
    torch.manual_seed(0)
    inputs, upstream = torch.randn(3, 2, 2, 9, 4, dtype=torch.float64), torch.randn(2, 2, 9, 4, dtype=torch.float64)
    for found, expected in zip(
        with_gradients(causal_attention, inputs, upstream), with_gradients(plain, inputs, upstream), strict=True
    ):
        torch.testing.assert_close(found, expected)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("length", [1024, 128, 200])
def test_compiled_to_repeat_it_is_right_and_repeats(length: int) -> None:
    torch.manual_seed(0)
    inputs, upstream = torch.randn(3, 4, 2, length, 64, device="cuda"), torch.randn(4, 2, length, 64, device="cuda")
    expected = with_gradients(plain, inputs.double(), upstream.double())
    with repeatable(True):
        compiled = torch.compile(causal_attention, dynamic=False)
        found = [with_gradients(compiled, inputs.bfloat16(), upstream) for _ in range(3)]
    for one, two, three, right in zip(*found, expected, strict=True):
        assert torch.equal(one, two)
        assert torch.equal(one, three)
        assert (one - right).norm() < 0.01 * right.norm()
