"""The forms in which a search takes its loss."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

import strongticket as st
from strongticket.learn.losses import as_loss

X, CLASSES = torch.randn(6, 4, generator=torch.Generator().manual_seed(0)), torch.arange(6) % 3


class WithLoss(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Tensor:
        logits = self.linear(x)
        return logits if labels is None else 7 * F.cross_entropy(logits, labels)


def plain() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (None, lambda y: F.cross_entropy(y, CLASSES)),
        (nn.CrossEntropyLoss(label_smoothing=0.1), lambda y: F.cross_entropy(y, CLASSES, label_smoothing=0.1)),
        (F.cross_entropy, lambda y: F.cross_entropy(y, CLASSES)),
        (lambda output, target: output.sum() + target.sum(), lambda y: y.sum() + CLASSES.sum()),
        (lambda output, y: output.sum() + y.sum(), lambda y: y.sum() + CLASSES.sum()),
        (lambda model, batch: model(batch[0]).sum(), lambda y: y.sum()),
    ],
)
def test_pairs(loss: Any, expected: Any) -> None:
    model = plain()
    assert torch.equal(as_loss(loss)(model, (X, CLASSES)), expected(model(X)))
    assert torch.equal(as_loss(loss)(model, [X, CLASSES]), expected(model(X)))


def test_a_model_that_takes_targets_gives_its_own_loss() -> None:
    model = WithLoss()
    assert torch.equal(as_loss(None)(model, (X, CLASSES)), model(X, CLASSES))
    assert torch.equal(as_loss(None)(model, {"x": X, "labels": CLASSES}), model(X, CLASSES))


def test_tokens_have_a_class_each() -> None:
    x, classes = X.view(2, 3, 4), CLASSES.view(2, 3)
    model = plain()
    assert torch.equal(as_loss(None)(model, (x, classes)), as_loss(None)(model, (X, CLASSES)))


@pytest.mark.parametrize(
    "y", [torch.randn(6, 3), torch.zeros(6, 3, dtype=torch.long), torch.zeros(5, dtype=torch.long)]
)
def test_what_is_no_class_number_is_refused(y: Tensor) -> None:
    with pytest.raises(ValueError, match=r"loss of batches \(x, y\) is the cross entropy.*Pass another, .*nn\.MSELoss"):
        as_loss(None)(plain(), (X, y))


def test_what_is_no_loss_is_refused() -> None:
    with pytest.raises(ValueError, match=r"loss must be a function of the model and a batch.*got 'mse'"):
        as_loss("mse")
    with pytest.raises(ValueError, match=r"needs batches \(x, y\); got a dict"):
        as_loss(nn.MSELoss())(plain(), {"x": X})


def test_a_loss_of_two_tensors_by_other_names_is_told_which_to_use() -> None:
    with pytest.raises(TypeError) as refused:
        as_loss(lambda o, t: nn.functional.cross_entropy(o, t))(plain(), (X, CLASSES))
    (note,) = refused.value.__notes__
    assert note.startswith("A loss gets the model and a batch, or output and target if the latter is called target,")


def test_a_search_learns_from_pairs() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))
    losses: list[float] = []
    st.search(model, [(X, CLASSES)] * 40, lr=3e-2, progress=lambda step, loss: losses.append(loss))
    assert losses[-1] < 0.5 * losses[0]


def test_numpy_batches_are_told_how_to_become_tensors() -> None:
    with pytest.raises(ValueError, match=r"must hold tensors; got NumPy arrays\. torch\.from_numpy"):
        st.search(plain(), [(X.numpy(), CLASSES.numpy())], steps=1)
