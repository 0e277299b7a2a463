"""Edge-popup on a module of your own: learn which random weights to keep, and train none of them.

    python examples/edge_popup.py [--out spirals.ticket]

Two spirals wind around each other; a small network has to tell them apart. Its weights are drawn once and never change.
"""

import argparse
import math
from pathlib import Path

import torch
from torch import Tensor, nn

import strongticket as st


def spirals(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw points (x, y, 1), (count, 3), and which spiral each lies on, (count,)."""
    generator = torch.Generator().manual_seed(seed)
    turn, label = torch.rand(count, generator=generator), torch.arange(count) % 2
    angle = 2 * math.pi * turn.sqrt() + math.pi * label
    points = torch.stack((angle.cos(), angle.sin()), dim=1) * turn.sqrt()[:, None]
    points += 0.02 * torch.randn(count, 2, generator=generator)
    # Biases are fixed at zero in a search; a coordinate that is always 1 lets random weights play their part.
    return nn.functional.pad(points, (0, 1), value=1.0), label


def make() -> nn.Module:
    """Give the network; any module will do."""
    return nn.Sequential(nn.Linear(3, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 2))


def accuracy(model: nn.Module, points: Tensor, labels: Tensor) -> float:
    """Give the share of points on the right spiral."""
    return (model(points).argmax(dim=1) == labels).float().mean().item()


def main() -> None:
    """Search, save the ticket, and put it into a fresh module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/spirals.ticket"), help="where the ticket goes")
    out = parser.parse_args().out

    torch.manual_seed(0)
    points, labels = spirals(2048, seed=0)
    batches = [(points[i::4], labels[i::4]) for i in range(4)]
    hidden = st.search(
        make(),
        batches,
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1]),
        policy=st.Policy(density=0.5, init="kaiming", rescale=True),
        steps=500,
        lr=3e-2,
        progress=lambda step, loss: print(f"step {step}, loss {loss:.3f}") if step % 100 == 0 else None,
    )
    ticket = hidden.to_ticket()
    out.parent.mkdir(parents=True, exist_ok=True)
    ticket.save(out)

    again = st.load_ticket(make(), st.Ticket.load(out))  # a fresh module: its weights come from the seed
    score = accuracy(again, *spirals(1000, seed=1))
    print(f"{ticket.kept():,} of {ticket.numel:,} random weights kept, none trained; {out.stat().st_size:,} bytes")
    print(f"new points on the right spiral: {100 * score:.1f} %")


if __name__ == "__main__":
    main()
