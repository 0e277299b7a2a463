"""The file of a trained model in few bits, with the container and the entropy coding of tickets."""

import io
import json
import zlib
from dataclasses import asdict
from typing import cast

import numpy as np
import torch
from torch import Tensor

from strongticket.errors import StrongTicketError
from strongticket.files import canonical_json
from strongticket.learn.rounded import GRIDS, Rounded, coded
from strongticket.models.gpt2 import GPT2, GPT2Config, group_of
from strongticket.tickets.coding import compile_kernels, decode, encode
from strongticket.tickets.container import Entry, header_bytes, header_of
from strongticket.tickets.symbols import Numbers, Symbols

_KEY = "strongticket"
_BYTE = 256


def to_bytes(learner: Rounded) -> bytes:
    """Write all tensors: whole numbers, or the two bytes of each bfloat16, in the code with the fewest bytes."""
    compile_kernels()
    entries, payloads, codings = list[Entry](), list[bytes](), dict[str, str]()

    def add(name: str, numbers: Numbers, alphabet: int) -> None:
        coding, pieces = encode(Symbols.pack(numbers, alphabet))
        payload = b"".join(map(bytes, pieces))
        entries.append(Entry(name, "U8", (len(payload),)))
        payloads.append(payload)
        codings[name] = coding

    tensors = {name: latent.detach() for name, latent in learner.latent.items()}
    for name, rounded in learner.rounded():
        if rounded.dim() > 1 and learner.stored in GRIDS:
            grid, found = GRIDS[learner.stored], coded(tensors[name], learner.stored, group_of(name))
            symbols = np.searchsorted(grid, found.codes.cpu().numpy())
            add(f"{name}.codes", symbols, len(grid))
            rounded, name = found.scales, f"{name}.scales"
        for which, byte in _bytes_of(rounded).items():
            add(f"{name}.{which}", byte, _BYTE)
    description: dict[str, object] = {
        "coding": codings,
        "config": asdict(cast(GPT2, learner.model).config),
        "stored": learner.stored,
    }
    file = io.BytesIO()
    file.write(header_bytes(header_of(entries, {_KEY: canonical_json(description)})))
    file.writelines(payloads)
    return file.getvalue()


def from_bytes(data: bytes, device: torch.device | str = "cpu") -> GPT2:
    """Read what `to_bytes` wrote: the model as it was evaluated."""
    try:
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(data[8:begin])
        description = json.loads(header.pop("__metadata__")[_KEY])
        stored, config = description["stored"], GPT2Config(**description["config"])
        model = GPT2(config, device=device)

        def read(name: str, count: int, alphabet: int) -> Numbers:
            first, last = header[name]["data_offsets"]
            payload = iter([data[begin + first : begin + last]])
            coding = description["coding"][name]
            return decode(coding, payload, last - first, alphabet=alphabet, count=count).unpack()

        def numbers(name: str, count: int) -> Tensor:
            high, low = (read(f"{name}.{which}", count, _BYTE).astype(np.int32) for which in ("high", "low"))
            return torch.from_numpy((high << 24 | low << 16).view(np.float32))

        for name, parameter in model.named_parameters():
            if f"{name}.codes" in header:
                grid = torch.tensor(GRIDS[stored], dtype=torch.float32)
                codes = grid[torch.from_numpy(read(f"{name}.codes", parameter.numel(), len(grid)).astype(np.int64))]
                rows = len(parameter) if _has_scale_each_row(stored, name) else 1
                value = codes.view(parameter.shape) * numbers(f"{name}.scales", rows)[:, None]
            else:
                value = numbers(name, parameter.numel()).view(parameter.shape)
            with torch.no_grad():
                parameter.copy_(value)
    except (LookupError, TypeError, ValueError, OverflowError, RuntimeError, zlib.error) as error:
        raise StrongTicketError(f"this is not the file of a trained model in few bits ({error!r:.120})") from None
    return model


def _has_scale_each_row(stored: str, name: str) -> bool:
    return stored in ("int8", "int4", "int3") or group_of(name) == "embeddings"


def _bytes_of(numbers: Tensor) -> dict[str, Numbers]:
    """Split bfloat16 numbers into bytes: signs and exponents are repetitive, the lower bytes are not."""
    bits = numbers.cpu().contiguous().numpy().view(np.int32).reshape(-1)
    return {"high": bits >> 24 & 0xFF, "low": bits >> 16 & 0xFF}
