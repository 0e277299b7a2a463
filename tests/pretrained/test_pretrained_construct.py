"""The same ticket however the work is cut, stopped, spread or resumed; and certificates that hold."""

import resource
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from strongticket import Ticket
from strongticket.construct.product import Miss
from strongticket.errors import StrongTicketError
from strongticket.pretrained import construct as construct_module
from strongticket.pretrained import construct_pretrained
from strongticket.pretrained.checkpoint import Checkpoint, remove_checkpoint
from strongticket.pretrained.pieces import Piece, Solved
from strongticket.pretrained.target import Target
from tests.pretrained.small_models import FAMILIES, make_bert, make_gpt2, make_vit, randomize, small

QUICK = {"items": 6, "seed": 5}


@pytest.fixture(scope="module")
def bert_ticket() -> Ticket:
    return construct_pretrained(small("bert"), **QUICK, what="attention+mlp")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_file_says_what_the_ticket_is(family: str) -> None:
    ticket = construct_pretrained(small(family), items=5, what="attention+mlp")
    loaded = Ticket.from_bytes(ticket.to_bytes())
    assert loaded == ticket
    # The digest of weights was made beside the work, from shapes alone: the file's own check agrees with it.
    assert loaded.verify().ok
    assert loaded.stored_digests == ticket.digests()
    numbers = Target(small(family), "attention+mlp").tensors()
    d, hidden = numbers["layer.0.query.weight"].shape[1], numbers["layer.0.down.weight"].shape[1]
    assert ticket.tensors["layer.0.attention.head.1.query"].shape == (d + 1, 5 * d)
    assert ticket.tensors["layer.1.mlp.down.first"].shape == (10 * hidden, hidden)
    kinds = {name.rpartition(".")[2]: tensor.mask.kind for name, tensor in ticket.tensors.items()}
    assert kinds == {
        "query": "bits",
        "key": "owners",
        "value": "owners",
        "output": "bits",
        "first": "owners",
        "second": "bits",
    }
    assert ticket.strong


def test_only_free_weights_take_bits() -> None:
    """About a bit for each weight the construction may choose, and nothing for what the blocks drop."""
    model = randomize(make_bert(hidden_size=48, num_hidden_layers=1))
    ticket = construct_pretrained(model, items=16)
    free = sum(tensor.numel for tensor in ticket.tensors.values() if tensor.mask.kind == "bits")
    assert free == 2 * 16 * 48 * (49 + 48)
    assert free / 8 <= len(ticket.to_bytes()) <= free / 8 + 8000


def test_workers_give_the_same_ticket(bert_ticket: Ticket) -> None:
    spread = construct_pretrained(small("bert"), **QUICK, what="attention+mlp", workers=2)
    assert spread.identity == bert_ticket.identity
    assert spread.certificate == bert_ticket.certificate


class StopError(Exception):
    pass


def test_an_interrupted_run_goes_on_at_the_head(
    bert_ticket: Ticket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, solved_now = tmp_path / "x.partial", []

    def run_here(function: object, pieces: list[Piece], *, progress: Any, **_: object) -> Iterator[Solved]:
        for index, piece in enumerate(pieces):
            solved_now.append(piece.name)
            result = piece.solve()
            progress(index, result)
            yield result
            if len(solved_now) == stop_after:
                raise StopError

    def construct() -> Ticket:
        return construct_pretrained(small("bert"), **QUICK, what="attention+mlp", checkpoint=folder)

    monkeypatch.setattr(construct_module, "run_tasks", run_here)
    stop_after = 3
    with pytest.raises(StopError):
        construct()
    names = [piece.name for part in Target(small("bert"), "attention+mlp").pieces(6, 5).values() for piece in part]
    assert solved_now == names[:3]
    # A file that a power cut left damaged is solved again, and so is one of zero length.
    (folder / f"{names[0]}.npz").write_bytes((folder / f"{names[0]}.npz").read_bytes()[:-40])
    (folder / f"{names[1]}.npz").write_bytes(b"")
    solved_now.clear()
    stop_after = 99
    with pytest.warns(UserWarning, match=r"head\.\d\.npz is damaged \(wrong SHA-256\); it is solved again"):
        assert construct() == bert_ticket
    assert solved_now == [names[0], names[1], *names[3:]]
    solved_now.clear()
    assert construct() == bert_ticket
    assert solved_now == []


@pytest.mark.parametrize(
    "other",
    [
        {"norms": {}},
        {"norms": []},
        {"norms": {"norm": 1.0, "error": "small"}},
        {"assigned": None},
        {"assigned": {}},
        {"worst_entry": None},
        {"worst_reached": [1.0]},
        {"n_unreachable": 0.5},
        {"unreachable": [("map", Miss(0, 1, "far"))]},  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_piece_with_other_facts_is_solved_again(other: dict[str, Any], tmp_path: Path) -> None:
    """Another release may have kept other facts under the same settings, with the right digest."""
    *_, piece = Target(small("bert"), "attention+mlp").pieces(6, 5)["layer.0.mlp.up"]
    told: list[str] = []
    with Checkpoint(tmp_path / "kept", {}, told.append).open() as kept:
        kept.keep(solved := piece.solve())
        assert kept.load(piece) is not None
        kept.keep(replace(solved, **other))
        assert kept.load(piece) is None
    (line,) = told
    assert "is damaged" in line


def test_the_folder_may_be_given_as_text(tmp_path: Path) -> None:
    construct_pretrained(small("vit"), items=4, checkpoint=str(tmp_path / "ck"))
    assert list((tmp_path / "ck").glob("*.npz"))


@pytest.mark.parametrize("name", ["notes.txt", "data.npz", "settings.json.old"])
def test_a_folder_with_files_of_others_is_refused_and_stays(name: str, tmp_path: Path) -> None:
    """It would be removed with the finished work, or when nothing was finished."""
    (folder := tmp_path / "x.partial").mkdir()
    (folder / name).write_text("mine")
    (link := tmp_path / "link").symlink_to(folder)
    for place in (folder, link):
        with pytest.raises(StrongTicketError, match="is not a construction's unfinished work; choose another place"):
            construct_pretrained(small("vit"), items=4, checkpoint=place)
        remove_checkpoint(place)
    assert [path.name for path in folder.iterdir()] == [name]


def test_unfinished_work_of_another_kind_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "x.partial"
    construct_pretrained(small("vit"), items=4, checkpoint=folder)
    with pytest.raises(StrongTicketError, match=r"unfinished work with other settings \(items: 4 there, 5 here\)"):
        construct_pretrained(small("vit"), items=5, checkpoint=folder)
    with pytest.raises(StrongTicketError, match=r"other settings \(target_sha256: "):
        construct_pretrained(randomize(make_vit(), seed=3), items=4, checkpoint=folder)


def test_the_same_weights_in_other_heads_or_scaled_otherwise_are_other_work(tmp_path: Path) -> None:
    folder = tmp_path / "x.partial"
    construct_pretrained(small("gpt2"), items=4, checkpoint=folder)
    with pytest.raises(StrongTicketError, match=r"other settings \(n_heads: 4 there, 2 here\)"):
        construct_pretrained(randomize(make_gpt2(n_head=2)), items=4, checkpoint=folder)
    with pytest.raises(StrongTicketError, match=r"other settings \(target_sha256: "):
        construct_pretrained(randomize(make_gpt2(scale_attn_weights=False)), items=4, checkpoint=folder)


def test_a_full_disk_is_told_with_the_file(tmp_path: Path) -> None:
    """The kernel refuses to let files grow past 64 bytes, as a full disk would."""
    solved = Target(small("vit")).pieces(4, 0)["layer.0.attention"][0].solve()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with Checkpoint(tmp_path / "x.partial", {}).open() as kept:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
        try:
            with pytest.raises(OSError, match=r"File too large: '.*x\.partial/layer\.0\.attention\.head\.0\.npz'"):
                kept.keep(solved)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_nothing_is_left_of_a_run_that_failed_at_once(tmp_path: Path) -> None:
    with pytest.raises(StrongTicketError, match="no Dask scheduler answers"):
        construct_pretrained(small("vit"), items=4, dask="tcp://127.0.0.1:9", checkpoint=tmp_path / "x.partial")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"items": 3}, "items must be 4 to 32; got 3"),
        ({"items": 33}, "items must be 4 to 32; got 33"),
        ({"items": 4.5}, "items must be a whole number"),
        ({"what": "mlp"}, "what must be one of attention, attention.mlp; got 'mlp'"),
        ({"seed": -1}, "seed must be a whole number in 0"),
    ],
)
def test_bad_settings_are_told(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        construct_pretrained(small("bert"), **{"items": 4, **arguments})


def test_whole_numbers_may_come_from_numpy() -> None:
    ticket = construct_pretrained(small("vit"), items=np.int64(4), seed=np.int64(3))
    assert ticket == construct_pretrained(small("vit"), items=4, seed=3)


def test_torchs_default_device_does_not_matter() -> None:
    expected = construct_pretrained(small("vit"), items=4, what="attention+mlp")
    with torch.device("meta"):
        assert construct_pretrained(small("vit"), items=4, what="attention+mlp") == expected


def test_sums_are_counted() -> None:
    seen: list[int] = []
    construct_pretrained(small("gpt2"), items=4, what="attention+mlp", progress=seen.append)
    d, hidden = 16, 24
    assert sum(seen) == 2 * (4 * ((d + 1) * d + d * d) + 2 * (2 * d * hidden))


def test_pieces_are_small_to_send() -> None:
    """A head's piece holds its own numbers, and no others travel with it."""
    import pickle

    model = randomize(make_bert(hidden_size=128, num_attention_heads=8, num_hidden_layers=1))
    piece = Target(model).pieces(20, 0)["layer.0.attention"][0]
    numbers = 4 * 16 * 128 + 16
    assert len(pickle.dumps(piece)) < 4 * numbers + 2000
    assert np.shares_memory(
        piece.factors["qk"].left, model.encoder.layer[0].attention.self.query.weight.detach().numpy()
    )


def test_dask_with_a_worker_killed_on_the_way_gives_the_same_ticket(
    cluster: tuple[str, list["subprocess.Popen[bytes]"]],
) -> None:
    address, workers = cluster
    model = randomize(make_bert(hidden_size=32, num_attention_heads=16))
    calls: list[int] = []

    def kill_one(sums: int) -> None:
        calls.append(sums)
        if len(calls) == 3:
            workers[0].send_signal(signal.SIGKILL)
            workers[0].wait()

    spread = construct_pretrained(model, items=14, dask=address, progress=kill_one)
    assert [worker.poll() for worker in workers] == [-signal.SIGKILL, None]
    assert spread == construct_pretrained(model, items=14)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_gpu_gives_the_same_ticket(family: str) -> None:
    """Sums of an MLP with 20 items on average have up to 32 and sometimes more, which go to the CPU."""
    here, there = (
        construct_pretrained(small(family), items=20, what="attention+mlp", device=device) for device in ("cpu", "cuda")
    )
    assert there.identity == here.identity
    assert there.stored_digests == here.stored_digests
    for mine, theirs in zip(here.certificate.details["parts"], there.certificate.details["parts"], strict=True):
        assert mine["error"] <= theirs["error"] * (1 + 1e-9)
        assert theirs["error"] <= mine["error"] * 1.01
