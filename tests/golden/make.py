"""Write the golden tickets that are not there yet. None is ever written again: every later release is held to them.

python -m tests.golden.make
"""

import json
from pathlib import Path

import torch

from strongticket import (
    BlockMask,
    DenseTensor,
    Frozen,
    FullMask,
    PackedMask,
    RandomTensor,
    Ticket,
    coded_mask,
    owner_mask,
    random_weights,
)
from strongticket.tickets.codes import CodeMask
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.table import Table
from tests.small_tickets import small_ticket

FOLDER = Path(__file__).parent


def attention_like() -> Ticket:
    """One head as Theorem 3 makes it: implicit first masks, free second ones, an exact output bias."""
    d, items = 8, 12
    units = d * items
    names = ("query", "key", "value", "output")
    blocks = {"query": BlockMask((d, units), 1, items), "value": BlockMask((d, units), 1, items)}
    free = {name: PackedMask.random((units, d), 0.5, seed=i) for i, name in enumerate(("key", "output"))}
    scale = {"query": units**0.25, "key": units**0.25, "value": 1.0, "output": 1.0}
    return Ticket(
        seed=0,
        tensors=[RandomTensor(name=f"head.0.{n}", mask={**blocks, **free}[n], scale=scale[n]) for n in names],
        dense=[DenseTensor(name="output.bias", value=torch.linspace(-1, 1, d))],
        architecture={"family": "attention", "d_model": d, "n_heads": 1, "key_width": units, "value_width": units},
    )


def search_like() -> Ticket:
    """Masked matrices at density 0.3 and 0.05, frozen random embeddings, normal and signed-constant weights."""
    return Ticket(
        seed=2**64 - 1,
        tensors=[
            RandomTensor(name="wte.weight", mask=FullMask((300, 16)), distribution="normal", scale=0.02),
            RandomTensor(
                name="h.0.attn.q",
                mask=PackedMask.random((64, 64), 0.3, seed=4),
                distribution="normal",
                scale=0.02 * 8**0.5,
            ),
            RandomTensor(
                name="h.0.mlp.up", mask=PackedMask.random((63, 65), 0.05, seed=5), distribution="sign", scale=0.1
            ),
        ],
        architecture={"family": "gpt2", "size": "golden", "output_gain": 4.0},
        metadata={"note": "golden"},
    )


def codes_like() -> Ticket:
    """What the rules of a search find: signs, levels, weights drawn again, a scale, frozen parts; and a mask so sparse
    that its payload is filled up, of so many weights that they have eight states."""
    rare = random_weights(1, "rare", (2, 66_000)) > 0.9998
    return Ticket(
        seed=11,
        tensors=[
            _coded("signed", (40, 33), ((0.0, 0), (1.0, 0), (-1.0, 0)), "normal", 0.05),
            _coded("levels", (30, 20), tuple((0.1 * level, 0) for level in range(16)), "uniform", 0.5),
            _coded("again", (25, 41), ((0.0, 0), (1.0, 0), (1.0, 1), (1.0, 2), (-0.5, 2**32 - 1)), "normal", 1.0),
            _coded("binary", (64, 30), ((0.0, 0), (0.0123, 0)), "packed-sign", 1.0),
            _coded("one", (3,), ((-2.5, 7),), "sign", 1.0),
            _coded("fixed", (50, 50), ((0.0, 0), (1.0, 0)), "uniform", 1.0, Frozen.of(11, "fixed", (0.4, 0.3))),
            _coded("turned", (50, 9), ((0.0, 0), (-1.0, 0), (1.0, 0)), "sign", 0.5, Frozen(0, (0.25, 0.0, 0.125))),
            RandomTensor(name="rare", mask=PackedMask.from_bool(rare), distribution="packed-sign", scale=0.25),
        ],
        architecture={"family": "none", "note": "every rule's codes"},
    )


def _coded(
    name: str, shape: tuple[int, ...], table: Table, distribution: str, scale: float, frozen: Frozen | None = None
) -> RandomTensor:
    """Codes as a seed gives them, the first of them most often."""
    chosen = (random_weights(2, name, shape).abs().square() * len(table)).long().clamp(max=len(table) - 1)
    if frozen:
        fixed = frozen.codes(chosen.numel()).view(shape).long()
        chosen = torch.where(fixed < 0, chosen, fixed)
    mask = coded_mask(chosen, table, frozen)
    assert isinstance(mask, CodeMask)
    return RandomTensor(name=name, mask=mask, distribution=distribution, scale=scale)  # type: ignore[arg-type]


def owners_like() -> Ticket:
    """Two random layers whose hidden units chose their coordinates: few, on either axis, and so many that they share a
    frequency."""
    few = (random_weights(3, "few", (60,)) * 4 + 3).long().clamp(-1, 6)
    many = ((random_weights(3, "many", (900,)) + 1) * 150.5).long() - 1
    return Ticket(
        seed=12,
        tensors=[
            RandomTensor(name="first", mask=owner_mask((60, 7), 0, few)),
            RandomTensor(name="second", mask=PackedMask.random((5, 60), 0.5, seed=6)),
            RandomTensor(name="wide", mask=owner_mask((300, 900), 1, many), distribution="packed-sign"),
        ],
        architecture={"family": "linear"},
    )


def scales_like() -> Ticket:
    """Learned scales: one, one per output, per head and per block, and blocks that do not come out even. One is
    negative, which makes dropped weights -0."""
    masks = {
        "whole": (PackedMask.random((12, 10), 0.4, seed=7), (1, 1)),
        "outputs": (PackedMask.random((9, 5, 3, 3), 0.5, seed=8), (9, 1, 1, 1)),
        "heads": (PackedMask.random((6, 24), 0.3, seed=9), (1, 4)),
        "blocks": (_coded("blocks", (70, 130), ((0.0, 0), (1.0, 0), (-1.0, 0)), "sign", 0.5).mask, (2, 3)),
        "uneven": (PackedMask.random((7, 11), 0.5, seed=10), (5, 3)),
        "vector": (FullMask((13,)), (4,)),
    }
    return Ticket(
        seed=13,
        tensors=[
            RandomTensor(name=name, mask=mask, distribution="packed-sign", scale=0.5)
            for name, (mask, _) in masks.items()
        ],
        dense=[
            DenseTensor(
                name=f"{name}.scales", value=random_weights(13, f"{name}.scales", counts, "normal"), trained=True
            )
            for name, (_, counts) in masks.items()
        ],
        architecture={"family": "none", "note": "learned scales"},
    )


TICKETS = {
    "every-feature": small_ticket,
    "attention": attention_like,
    "search": search_like,
    "codes": codes_like,
    "owners": owners_like,
    "scales": scales_like,
}

if __name__ == "__main__":
    expected = json.loads((FOLDER / "expected.json").read_text())
    for name, make in TICKETS.items():
        if not (FOLDER / f"{name}.ticket").exists():
            ticket = make()
            ticket.save(FOLDER / f"{name}.ticket")
            masked = digest_of_tensors(dict(ticket.materialize()))
            expected[f"{name}.ticket"] = {"identity": ticket.identity, "masked_weights": masked}
    (FOLDER / "expected.json").write_text(json.dumps(expected, indent=2) + "\n")
