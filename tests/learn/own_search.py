"""A search in a module of one's own; as a script, python own_search.py FOLDER RULE, slow enough to be killed."""

import sys
import time
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import strongticket as st

POINTS = torch.randn(96, 6, generator=torch.Generator().manual_seed(0))
LABELS = (POINTS[:, 0] * POINTS[:, 1] > 0).long()


def make() -> nn.Module:
    """Give a network with running means and dropout."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 2))


def classify(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Give the loss of a batch."""
    return nn.functional.cross_entropy(model(batch[0]), batch[1])


def search(out: Path, rule: str = "edge-popup", seconds_a_step: float = 0) -> None:
    """Search, or go on with it."""
    model = make()
    st.search(
        model,
        DataLoader(TensorDataset(POINTS, LABELS), batch_size=8, shuffle=True),
        loss=classify,
        rule=rule,
        steps=60,
        lr=3e-2,
        validation=[(POINTS, LABELS)],
        validate_every=20,
        out=out,
        checkpoint_seconds=0,
        progress=lambda step, loss: time.sleep(seconds_a_step),
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    search(Path(sys.argv[1]), sys.argv[2], seconds_a_step=0.1)
