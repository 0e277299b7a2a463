"""How files are written: whole or not at all, where a link leads, under any name the disk takes."""

import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from strongticket.errors import StrongTicketError
from strongticket.files import (
    BusyError,
    append_line,
    atomic_write,
    discard,
    lock,
    lock_file,
    read_json,
    regular,
    sweep,
)
from tests.waiting import wait_until


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


def test_a_lock_is_waited_for_or_refused(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with lock_file(tmp_path / "lock"):
            order.append("second")

    with lock_file(tmp_path / "lock"):
        with pytest.raises(BusyError, match="another run is working"), lock_file(tmp_path / "lock", waits=False):
            order.append("nobody")
        other = threading.Thread(target=second)
        other.start()
        other.join(timeout=0.2)
        order.append("first")
    other.join()
    assert order == ["first", "second"]
    assert list(tmp_path.iterdir()) == []


def parts(folder: Path) -> list[Path]:
    return list(folder.glob(".strongticket-*.part"))


def start_writing(path: Path) -> "subprocess.Popen[bytes]":
    """Start a process that stays in the middle of writing a file."""
    script = (
        "import pathlib, sys, time; from strongticket.files import atomic_write\n"
        "with atomic_write(pathlib.Path(sys.argv[1])) as file: file.write(b'theirs'); file.flush(); time.sleep(60)"
    )
    before = len(parts(path.parent))
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stderr=subprocess.DEVNULL)
    wait_until(lambda: len(parts(path.parent)) > before and any(part.stat().st_size for part in parts(path.parent)))
    return process


def test_what_a_killed_writer_left_goes_when_its_folder_is_written_to_again(tmp_path: Path) -> None:
    killed = start_writing(tmp_path / "file")
    killed.kill()
    killed.wait()
    assert len(parts(tmp_path)) == 1
    write(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.parametrize("stopped", [False, True])
def test_what_a_living_writer_has_begun_stays(stopped: bool, tmp_path: Path) -> None:
    writer = start_writing(tmp_path / "file")
    try:
        if stopped:
            writer.send_signal(signal.SIGSTOP)
        begun = parts(tmp_path)
        write(tmp_path / "file", b"ours")
        sweep(tmp_path)
        assert parts(tmp_path) == begun
    finally:
        writer.kill()
        writer.wait()


def test_other_files_are_not_swept(tmp_path: Path) -> None:
    others = {tmp_path / ".other.part", tmp_path / "strongticket.part", tmp_path / ".strongticket-notes"}
    for other in others:
        other.touch()
    write(tmp_path / "file", b"new")
    assert set(tmp_path.iterdir()) == {*others, tmp_path / "file"}


def test_many_writers_of_one_file_and_a_sweeper_do_not_meet(tmp_path: Path) -> None:
    """Parts are made, locked, swept and renamed at the same time; whoever ends has written, and nothing is left."""
    contents = [bytes([k]) * 1000 for k in range(4)]
    failed: list[BaseException] = []

    def writer(content: bytes) -> None:
        try:
            for _ in range(60):
                write(tmp_path / "file", content)
                sweep(tmp_path)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=writer, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert (tmp_path / "file").read_bytes() in contents
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_folder_is_gone_at_one_stroke_and_its_rest_is_swept(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "deeper").mkdir(parents=True)
    discard(folder)
    discard(folder)  # which is no longer there
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".strongticket-0123.part" / "half").mkdir(parents=True)  # as a kill leaves it
    write(tmp_path / "file", b"new")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_link_is_discarded_and_what_it_points_to_stays(tmp_path: Path) -> None:
    (theirs := tmp_path / "theirs").mkdir()
    (theirs / "file").touch()
    (tmp_path / "folder").symlink_to(theirs)
    discard(tmp_path / "folder")
    assert list(tmp_path.rglob("*")) == [theirs, theirs / "file"]


def test_a_lock_on_a_file_that_was_removed_is_none(tmp_path: Path) -> None:
    """The run before has ended and tidied up between our opening the file and locking it."""
    path = tmp_path / "lock"
    with open(path, "ab") as file:
        path.unlink()
        with pytest.raises(StrongTicketError, match="another run in this folder has just ended; run this one again"):
            lock(file, tmp_path)


def test_a_lock_file_goes_with_the_lock_and_one_left_by_a_kill_with_the_next(tmp_path: Path) -> None:
    path, inside, most = tmp_path / "a.lock", [0], [0]
    path.touch()  # as a kill leaves it

    def one() -> None:
        for _ in range(20):
            with lock_file(path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("room", [0, 1, 7])
def test_a_line_that_finds_no_room_is_an_error_that_names_the_file(room: int, tmp_path: Path) -> None:
    """A disk takes what it has room for, and says so only by a number that is easily overlooked."""
    path = tmp_path / "lines"
    path.write_bytes(b"{}\n" * 30)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (90 + room, before[1]))
    try:
        with pytest.raises(OSError, match=rf"File too large: '{path}'"), open(path, "ab", buffering=0) as file:
            append_line(file, {"step": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    with open(path, "r+b", buffering=0) as file:
        file.seek(90)
        append_line(file, {"step": 1})
    assert path.read_bytes().endswith(b'{}\n{"step": 1}\n')


def test_a_file_that_says_null_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    """A search with such a config.json went on, and left it as it was."""
    (path := tmp_path / "config.json").write_text("null")
    with pytest.raises(StrongTicketError, match=r"config\.json is damaged or not JSON \(it holds nothing\)"):
        read_json(path)
    assert read_json(tmp_path / "missing") is None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_refused_and_neither_waited_for_nor_replaced(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "result.json")
    with pytest.raises(OSError, match=r"not a regular file: .*result\.json"):
        read_json(pipe)
    (link := tmp_path / "link.json").symlink_to(pipe)
    with pytest.raises(OSError, match="not a regular file"):
        regular(link)
    assert regular(tmp_path / "missing") == tmp_path / "missing"
    for place in (pipe, link):  # replaced, it would be gone for who reads it: root lost /dev/null this way
        with pytest.raises(OSError, match="not a regular file"):
            write(place, b"new")
    assert pipe.is_fifo()
