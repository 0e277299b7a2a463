"""How files are written: whole or not at all, where a link leads, under any name the disk takes."""

import os
import threading
from pathlib import Path

import pytest

from strongticket.files import atomic_write, waiting_lock


def write(path: Path, content: bytes) -> None:
    with atomic_write(path) as file:
        file.write(content)


def test_a_link_goes_on_leading_to_its_file(tmp_path: Path) -> None:
    real, link = tmp_path / "a folder" / "real", tmp_path / "link"
    real.parent.mkdir()
    real.write_bytes(b"old")
    link.symlink_to(real)
    write(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    assert list(real.parent.iterdir()) == [real]


def test_a_link_to_nothing_makes_what_it_leads_to(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "not there yet")
    write(link, b"new")
    assert (tmp_path / "not there yet").read_bytes() == b"new"


def test_a_name_may_be_as_long_as_the_disk_takes(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write(path, b"new")
    assert path.read_bytes() == b"new"


def test_what_fails_half_way_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError), atomic_write(path) as file:
        file.writelines([b"half of the new", "and no bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("durable", [True, False, None])
def test_files_are_on_the_disk_before_they_take_their_place(
    durable: bool | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut leaves the old file or the new one, unless that is not asked for."""
    path, seen = tmp_path / "file", []

    def fsync(descriptor: int) -> None:
        seen.append((os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(path) if durable is None else atomic_write(path, durable=durable) as file:
        file.write(b"new")
    assert seen == ([] if durable is False else [(3, False)])


def test_a_lock_is_waited_for(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with waiting_lock(tmp_path):
            order.append("second")

    with waiting_lock(tmp_path):
        other = threading.Thread(target=second)
        other.start()
        other.join(timeout=0.2)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []
