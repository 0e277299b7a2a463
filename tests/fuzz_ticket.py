"""Mutate tickets and read them back: whatever comes in, `TicketFormatError` or an honest ticket comes out.

python -m tests.fuzz_ticket --count 1000000 --seed 0
"""

import argparse
import random
import re
import time
from collections import Counter

from rich.progress import track

from strongticket import Ticket, TicketFormatError
from tests.golden.make import TICKETS
from tests.small_tickets import DIGEST_BYTES, put_together, sealed, take_apart

_TOKEN = re.compile(r'-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|"[^"]*"|true|false|null')
_STRANGE = [
    "0", "-1", "1.5", "0.0", "-0.0", "0.5", "1e999", "NaN", "null", "true", "[]", "{}", '""', '"x"', '"../x"',
    '"\\ud800"', '"raw"', '"huffman"', '"rans"', '"codes"', '"owners"', '"packed-sign"',
    "9" * 25, "1" + "0" * 5000, "[" * 2000, str(2**40), str(2**40 + 1), str(2**63),
]  # fmt: skip


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    """Flip one to four bits."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Cut the end off."""
    return data[: rng.randrange(len(data))]


def splice(data: bytes, rng: random.Random) -> bytes:
    """Remove, repeat or overwrite a run of bytes."""
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.randint(1, 40))
    return data[:start] + rng.choice([b"", data[start:end] * 2, rng.randbytes(end - start)]) + data[end:]


def change_length(data: bytes, rng: random.Random) -> bytes:
    """Announce another header length."""
    return rng.choice([rng.getrandbits(64), rng.randrange(len(data)), 2**63]).to_bytes(8, "little") + data[8:]


def change_token(data: bytes, rng: random.Random) -> bytes:
    """Put a strange value in the place of one of the description's values, or another of its own."""
    header, _, payload = take_apart(data)
    text = header["__metadata__"]["strongticket"]
    tokens = list(_TOKEN.finditer(text))
    token = rng.choice(tokens)
    replacement = rng.choice([rng.choice(_STRANGE), rng.choice(tokens).group()])
    return put_together(header, text[: token.start()] + replacement + text[token.end() :], payload)


def change_table(data: bytes, rng: random.Random) -> bytes:
    """Change one number of the container's table."""
    header, description, payload = take_apart(data)
    entry = header[rng.choice([name for name in header if name != "__metadata__"])]
    numbers = entry[rng.choice(["data_offsets", "shape"])]
    if numbers:
        numbers[rng.randrange(len(numbers))] = rng.choice([0, 1, -1, 2**40, 2**62, rng.randrange(4096)])
    return put_together(header, description, payload)


def change_payload(data: bytes, rng: random.Random) -> bytes:
    """Change the masks' or dense tensors' bytes and seal the file again."""
    header, description, payload = take_apart(data)
    return put_together(header, description, flip_bits(payload, rng) if payload else payload)


MUTATIONS = [flip_bits, truncate, splice, change_length, change_token, change_table, change_payload]


def mutants(count: int, seed: int) -> "list[tuple[str, bytes]]":
    """Give `count` mutated tickets with the names of what was done to them; half of those that can be are sealed."""
    rng = random.Random(seed)
    originals = [make().to_bytes() for make in TICKETS.values()]

    def one() -> tuple[str, bytes]:
        mutation = rng.choice(MUTATIONS)
        data = mutation(rng.choice(originals), rng)
        if len(data) > DIGEST_BYTES and rng.random() < 0.5:
            data = sealed(data)
        return mutation.__name__, data

    return [one() for _ in range(count)]


def outcome(data: bytes) -> str:
    """Read one mutant; what still reads must write and read back as itself."""
    try:
        ticket = Ticket.from_bytes(data)
    except TicketFormatError:
        return "refused"
    again = Ticket.from_bytes(ticket.to_bytes())
    assert again.identity == ticket.identity
    return "read"


def main() -> None:
    """Run the fuzzer in batches, so that memory stays flat, and print what happened to each kind of mutant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    slowest, batch = 0.0, 1000
    for index in track(range(arguments.count // batch), description="mutants, in thousands"):
        for kind, data in mutants(batch, seed=arguments.seed + index):
            before = time.perf_counter()
            counts[kind, outcome(data)] += 1
            slowest = max(slowest, time.perf_counter() - before)
    for (kind, result), count in sorted(counts.items()):
        print(f"{kind:15} {result:8} {count:9}")
    print(f"{counts.total()} mutants, none crashed; the slowest took {slowest:.3f} s")


if __name__ == "__main__":
    main()
