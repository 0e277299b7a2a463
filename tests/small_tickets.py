"""Tickets for tests, and the tools to take their bytes apart and put them together again."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch

from strongticket import BlockMask, Certificate, DenseTensor, FullMask, PackedMask, RandomTensor, Ticket
from strongticket.files import canonical_json
from strongticket.tickets.container import header_bytes

DIGEST_BYTES = 32


def small_ticket() -> Ticket:
    """Every feature of the format in about two kilobytes."""
    return Ticket(
        seed=2**63 + 11,
        tensors=[
            RandomTensor(name="head.0.query", mask=BlockMask((3, 7), 1, (2, 2, 1)), scale=8**0.25),
            RandomTensor(name="head.0.key", mask=PackedMask.random((3, 7), 0.5, seed=1)),
            RandomTensor(
                name="mlp.up", mask=PackedMask.random((40, 9), 0.05, seed=2), distribution="normal", scale=0.02
            ),
            RandomTensor(name="mlp.down", mask=BlockMask((8, 4), 0, 2), distribution="sign", scale=0.5),
            RandomTensor(name="norm", mask=FullMask((5,)), distribution="normal"),
            RandomTensor(name="nothing", mask=PackedMask.random((0, 4), 0.5, seed=3)),
        ],
        dense=[
            DenseTensor(name="bias", value=torch.tensor([0.5, -0.0, 1e-300], dtype=torch.float64)),
            DenseTensor(name="embedding", value=torch.arange(6.0).view(3, 2).bfloat16(), trained=True),
        ],
        architecture={"family": "test", "n_heads": 1, "output_gain": 4.0},
        certificate=Certificate(error=0.25, input_norm=2.0, target_sha256="ab" * 32, details={"heads": [0.25]}),
        metadata={"note": "größer als null", "tags": ["a", None, True]},
    )


def take_apart(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Split a ticket's bytes into container header, description and data (without the digest)."""
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    description = json.loads(header["__metadata__"]["strongticket"])
    return header, description, data[8 + length : -DIGEST_BYTES]


def put_together(header: dict[str, Any], description: Any, data: bytes) -> bytes:
    """Assemble and seal a ticket, however wrong its parts are."""
    metadata = description if isinstance(description, str) else canonical_json(description)
    body = header_bytes({**header, "__metadata__": {**header["__metadata__"], "strongticket": metadata}}) + data
    return body + hashlib.sha256(body).digest()


def edited(data: bytes, edit: Callable[[dict[str, Any]], object]) -> bytes:
    """Change a ticket's description in place and seal it again."""
    header, description, payload = take_apart(data)
    edit(description)
    return put_together(header, description, payload)


def sealed(data: bytes) -> bytes:
    """Replace the last 32 bytes by the right digest of those before them."""
    return data[:-DIGEST_BYTES] + hashlib.sha256(data[:-DIGEST_BYTES]).digest()
