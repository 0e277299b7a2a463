"""Break commands at random moments, for as long as you like, and ask that each ends with the bytes of an unbroken run.

    python -m tests.soak [--minutes 60] [--rounds 100] [--only search] [--seed 0]

In every round a command is begun in a new folder, struck by one to three faults, and then left to finish. Whatever
happened, what it prints is no traceback, no process of it stays behind, and its folder has the same files with the same
bytes as one where nothing happened. The commands run in forks of this process, which has loaded all they need.
"""

import argparse
import ctypes
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

DISK = 96 << 20  # bytes of the disk that is filled
LONGEST = 600.0  # seconds that a command may take on a busy machine
# What the commands import when they need it: once here, and not again for every run.
WARM = """strongticket.cli.main strongticket.learn.text_run strongticket.pretrained.construct strongticket.parallel
    strongticket.experiments.fig4 strongticket.experiments.language strongticket.charts.terminal strongticket.cli.watch
    matplotlib.figure scipy.optimize transformers.models.bert.modeling_bert torch._dynamo"""
WORDS = "the river runs through old towns and under bridges where people wait for boats that seldom come"


# ---- commands ----


@dataclass(frozen=True)
class Job:
    """A command that can be broken off: what is called in a process of its own, given the folder it may write to."""

    name: str
    call: Callable[[Path], None]


def jobs(given: Path) -> list[Job]:
    """Lay out a small text and a small model in a folder, and give the commands that use them."""
    text, model = given / "text", given / "model"
    _write_text(text)
    _write_model(model)
    search = "--size nano --tokenizer bytes --length 32 --sequences 4 --micro-batch 2 --steps 24 --warmup 4 --lr 1e-2"
    search += " --validate-every 8 --checkpoint-seconds 0 --device cpu"

    def searched(folder: Path) -> None:
        _command("search", *search.split(), "--data", text, "--out", folder / "search")

    def constructed(folder: Path) -> None:
        _command("construct", "--model", model, "--items", 8, "--workers", 1, "--out", folder / "bert.ticket")

    def reproduced(folder: Path) -> None:
        _command("reproduce", "fig4", "--quick", "--target", "untrained", "--sources", 2, "--out", folder)

    return [
        Job("search", searched),
        Job("construct", constructed),
        Job("reproduce", reproduced),
        Job("runs of a figure on text", lambda folder: as_command(lambda: _text_runs(text, folder / "rows"))),
    ]


def _command(*arguments: object) -> None:
    from strongticket.__main__ import main

    sys.argv = ["strongticket", *map(str, arguments)]
    main()


def as_command(call: Callable[[], object]) -> None:
    """Call something as a command is called: its errors become lines."""
    from strongticket.__main__ import main
    from strongticket.cli import main as cli

    cli.app = lambda **_: call()  # type: ignore[assignment]
    main()


def _text_runs(text: Path, folder: Path) -> None:
    """Do what `reproduce fig7` does between reading its options and drawing, with runs of eight steps."""
    import torch

    from strongticket.data.text import load_text
    from strongticket.experiments.figure import Work
    from strongticket.experiments.language import Rows, run_missing
    from strongticket.learn.config import RunConfig
    from strongticket.learn.policy import Policy
    from strongticket.learn.run import Means
    from strongticket.learn.shared import Share

    torch.set_num_threads(1)
    small = {"size": "nano", "length": 32, "sequences": 4, "micro_batch": 4, "steps": 8, "warmup": 2}
    config = RunConfig(**small, policy=Policy(qk_scale=1.0), validate_every=4)  # type: ignore[arg-type]
    plan = [replace(config, seed=seed) for seed in range(3)]
    means = Means(share=Share(0, 1, torch.device("cpu")), keep=False, checkpoint_seconds=0)
    work = Work(text=load_text(str(text), tokenizer="bytes"), means=means)
    run_missing(plan, Rows(folder), work, progress=lambda *_: None, watch=lambda _: None)


def _write_text(folder: Path) -> None:
    chosen = random.Random(0)
    folder.mkdir(parents=True)
    for split, words in (("train", 4000), ("valid", 300)):
        (folder / f"{split}.txt").write_text(" ".join(chosen.choices(WORDS.split(), k=words)))


def _write_model(folder: Path) -> None:
    from tests.pretrained.small_models import make_bert, randomize

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 24}
    randomize(make_bert(**sizes)).save_pretrained(folder)  # type: ignore[operator]


def left_in(folder: Path) -> dict[str, object]:
    """Give what a command left in a folder, but for times and dates."""
    return {str(path.relative_to(folder)): _content(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def _content(path: Path) -> object:
    if path.name == "run.json":
        return None
    if path.suffix == ".jsonl":
        timed, lines = {"run", "tokens_per_second", "sha256"}, path.read_bytes().splitlines()
        found = [{key: value for key, value in json.loads(line).items() if key not in timed} for line in lines]
        # Processes that share the runs of a figure write their rows as they finish; figures take them in plan order.
        return sorted(found, key=json.dumps) if path.name == "rows.jsonl" else found
    return path.read_bytes()


# ---- processes ----


class Ended(NamedTuple):
    """How a command ended."""

    code: int  # a signal's number with a minus in front, as `subprocess` has it
    said: str


class Process:
    """A command in a fork of this process, with a session of its own; what it leaves behind becomes our child."""

    def __init__(self, job: Job, folder: Path, *, largest_file: int | None = None) -> None:
        sys.stdout.flush()
        self._told, told = os.pipe()
        self.ended: int | None = None
        # A signal that comes before the new process has its own handlers waits until then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                _become(told, folder, largest_file)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                job.call(folder)
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            except KeyboardInterrupt:  # before the command was called, or after its end
                code = 130
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(told)

    def send(self, number: signal.Signals, *, all_of_it: bool = True) -> None:
        """Send a signal to the command's processes, or to the first of them alone."""
        with suppress(ProcessLookupError):
            (os.killpg if all_of_it else os.kill)(self.pid, number)

    def running(self, seconds: float) -> bool:
        """Wait for some time, and say whether the command is still at work then."""
        deadline = time.monotonic() + seconds
        while self.ended is None and time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.ended = os.waitstatus_to_exitcode(status) if pid else None
            time.sleep(min(0.005, seconds / 4))
        return self.ended is None

    def wait(self) -> Ended:
        """Wait for the end of all processes of the command; one that stays behind is an error."""
        if self.running(LONGEST):
            self.send(signal.SIGKILL)
            raise AssertionError(f"still running after {LONGEST:.0f} s")
        deadline = time.monotonic() + 60
        with suppress(ChildProcessError):
            while True:
                pid, _ = os.waitpid(-self.pid, os.WNOHANG)
                if time.monotonic() > deadline:
                    self.send(signal.SIGKILL)
                    raise AssertionError("a worker outlived its command by a minute")
                time.sleep(0 if pid else 0.01)
        with os.fdopen(self._told, "rb") as said:
            assert self.ended is not None
            return Ended(self.ended, said.read().decode())


def _become(told: int, folder: Path, largest_file: int | None) -> None:
    """Set up a process that was just forked."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(told, 1)
    os.dup2(told, 2)
    sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
    _obey_permissions()
    os.environ["STRONGTICKET_CACHE"] = str(folder / "cache")
    if largest_file is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))


def _obey_permissions() -> None:
    """Give up root's right to write where permissions forbid it."""
    libc, overrides = ctypes.CDLL(None), 1  # CAP_DAC_OVERRIDE
    header, sets = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc.capget(header, sets)
    sets[0] &= ~(1 << overrides)
    libc.capset(header, sets)


def _adopt_orphans() -> None:
    """Become the parent of what a killed command leaves behind, so that it can be waited for."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


# ---- faults ----


@dataclass
class Strike:
    """One fault to come: the command, where it works, how long it usually takes, and chance."""

    job: Job
    folder: Path
    seconds: float
    chance: random.Random

    def moment(self) -> float:
        """Choose when to strike; rather early, since most of the work may be done already."""
        return self.seconds * 1.05 * self.chance.random() ** 1.5

    def kill(self) -> Ended:
        """Kill -9: the command with its workers, or without."""
        return self._signal(signal.SIGKILL, -signal.SIGKILL)

    def terminate(self) -> Ended:
        """SIGTERM, as from a batch system."""
        return self._signal(signal.SIGTERM, -signal.SIGTERM, 130)

    def interrupt(self) -> Ended:
        """Ctrl-C."""
        return self._signal(signal.SIGINT, 130, 1)

    def _signal(self, number: signal.Signals, *codes: int) -> Ended:
        process = Process(self.job, self.folder)
        struck = process.running(self.moment())
        if struck:
            process.send(number, all_of_it=number is signal.SIGINT or self.chance.random() < 0.5)
        return _expected(process.wait(), *(codes if struck else ()), 0)

    def pause(self) -> Ended:
        """SIGSTOP, and SIGCONT after a while."""
        process = Process(self.job, self.folder)
        for _ in range(3):
            if process.running(self.moment() / 3):
                process.send(signal.SIGSTOP)
                time.sleep(self.chance.random() / 2)
                process.send(signal.SIGCONT)
        return _expected(process.wait(), 0)

    def second(self) -> Ended:
        """Two processes at once; the first may be stopped for a while or killed meanwhile."""
        first = Process(self.job, self.folder)
        fate = self.chance.choice((None, signal.SIGSTOP, signal.SIGKILL))
        if first.running(self.moment()) and fate is signal.SIGSTOP:
            first.send(fate)
        second = Process(self.job, self.folder)
        second.running(min(2.0, self.moment()))
        if fate is not None:
            first.send(signal.SIGCONT if fate is signal.SIGSTOP else fate)
        _expected(first.wait(), 0, 1, -signal.SIGKILL)
        ended = _expected(second.wait(), 0, 1)
        assert ended.code == 0 or "another run" in ended.said, ended
        return ended

    def fill_disk(self) -> Ended:
        """Fill the disk up to a few kB, or some more."""
        room = int(400_000 * self.chance.random() ** 2)
        with _filled(self.folder.parent, room):
            return self._without_room(Process(self.job, self.folder))

    def limit_files(self) -> Ended:
        """Let no file grow beyond a size."""
        most = int(200_000 * self.chance.random() ** 2)
        return self._without_room(Process(self.job, self.folder, largest_file=most))

    def forbid_writing(self) -> Ended:
        """Take the right to write away from all folders there are, from some moment on."""
        process = Process(self.job, self.folder)
        process.running(self.chance.choice((0.0, self.moment())))
        folders = [self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())]
        try:
            for path in folders:
                with suppress(FileNotFoundError):
                    path.chmod(0o555)
            return self._without_room(process)
        finally:
            for path in folders:
                with suppress(FileNotFoundError):
                    path.chmod(0o755)

    def _without_room(self, process: Process) -> Ended:
        ended = _expected(process.wait(), 0, 1)
        if ended.code:
            *_, last = ended.said.strip().splitlines()
            assert last.startswith("Error: "), ended
            assert str(self.folder) in last, f"names no file: {ended}"
        return ended


FAULTS: Mapping[str, Callable[[Strike], Ended]] = {
    "kill -9": Strike.kill,
    "SIGTERM": Strike.terminate,
    "Ctrl-C": Strike.interrupt,
    "SIGSTOP, SIGCONT": Strike.pause,
    "two processes": Strike.second,
    "full disk": Strike.fill_disk,
    "largest file": Strike.limit_files,
    "read-only folders": Strike.forbid_writing,
}


def _expected(ended: Ended, *codes: int) -> Ended:
    assert "Traceback" not in ended.said, ended
    assert ended.code in codes, ended
    return ended


@contextmanager
def _filled(disk: Path, room: int) -> Iterator[None]:
    """Leave so many bytes free on a disk."""
    free = os.statvfs(disk)
    filler = disk / "filler"
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - room))
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def small_disk(at: Path) -> Iterator[bool]:
    """Put a small disk at a folder, which can be filled; say whether this user may."""
    at.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "strongticket-soak", str(at)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", str(at)], check=True)


# ---- rounds ----


@dataclass
class Soak:
    """Round after round, and what came of them."""

    disk: Path
    jobs: Sequence[Job]
    faults: Sequence[str]
    chance: random.Random
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)  # the fault ended the command, or held it up
    missed: Counter[tuple[str, str]] = field(default_factory=Counter)  # the command had finished before, or had room
    equal: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seconds: dict[str, float] = {}  # that a command takes, by its name
        self.expected: dict[str, Mapping[str, object]] = {}
        for job in self.jobs:
            with self._folder() as folder:
                before = time.monotonic()
                _expected(Process(job, folder).wait(), 0)
                self.seconds[job.name] = time.monotonic() - before
                self.expected[job.name] = left_in(folder)

    @property
    def rounds(self) -> int:
        """How many there were."""
        return self.equal.total() + len(self.failures)

    def round(self) -> None:
        """Begin a command, strike it one to three times, and let it finish."""
        job = self.chance.choice(self.jobs)
        history: list[object] = []
        with self._folder() as folder:
            try:
                for fault in self.chance.choices(self.faults, k=self.chance.randint(1, 3)):
                    history.append(fault)
                    ended = FAULTS[fault](Strike(job, folder, self.seconds[job.name], self.chance))
                    held_up = fault in ("SIGSTOP, SIGCONT", "two processes")
                    (self.struck if ended.code or held_up else self.missed)[job.name, fault] += 1
                    history.append(ended)
                began = time.monotonic()
                history.append(_expected(Process(job, folder).wait(), 0))
                self.seconds[job.name] = max(0.5 * self.seconds[job.name], time.monotonic() - began)
                assert left_in(folder) == self.expected[job.name], _difference(left_in(folder), self.expected[job.name])
                self.equal[job.name] += 1
            except AssertionError as error:
                self.failures.append(f"{job.name}: {error}\n  after {history}")
                print(self.failures[-1], file=sys.stderr, flush=True)

    @contextmanager
    def _folder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(dir=self.disk))
        try:
            yield folder
        finally:
            shutil.rmtree(folder)

    def table(self) -> str:
        """Write the counts for docs/reliability.md: faults that struck, and in brackets those that came too late."""
        names = [job.name for job in self.jobs]
        rows = [["what happened", *names]]
        rows += [
            [fault, *(f"{self.struck[name, fault]} ({self.missed[name, fault]})" for name in names)]
            for fault in self.faults
        ]
        rows += [["endings with the unbroken run's bytes", *(str(self.equal[name]) for name in names)]]
        rows.insert(1, ["---"] * len(rows[0]))
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _difference(found: Mapping[str, object], expected: Mapping[str, object]) -> str:
    names = sorted(found.keys() | expected.keys())
    differing = [name for name in names if found.get(name, "") != expected.get(name, "")]
    sizes = [f"{name} ({_size(found, name)}, not {_size(expected, name)})" for name in differing]
    return f"differs in {', '.join(sizes)}"


def _size(content: Mapping[str, object], name: str) -> str:
    part = content.get(name)
    if isinstance(part, list):
        return f"{len(part)} lines"
    return f"{len(part)} bytes" if isinstance(part, bytes) else "no file"


@contextmanager
def soak(seed: int, *, only: Sequence[str] = ()) -> Iterator[Soak]:
    """Set everything up; the caller does the rounds."""
    for name in WARM.split():
        import_module(name)
    import_module("numba.core.registry").cpu_target.target_context.refresh()  # what numba loads for its first kernel
    _adopt_orphans()
    with tempfile.TemporaryDirectory() as scratch, small_disk(Path(scratch) / "disk") as can_be_filled:
        faults = [fault for fault in FAULTS if can_be_filled or fault != "full disk"]
        chosen = [job for job in jobs(Path(scratch) / "given") if not only or job.name in only]
        yield Soak(Path(scratch) / "disk", chosen, faults, random.Random(seed))


def main() -> int:
    """Soak for some time, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, help="end after so many rounds, if the time is not over before")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], help="a command's name; may be repeated")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and the disk is taken away again
    deadline = time.monotonic() + 60 * arguments.minutes
    with soak(arguments.seed, only=arguments.only) as run:
        while time.monotonic() < deadline and run.rounds != arguments.rounds:
            run.round()
        print(run.table())
        faults, minutes = run.struck.total() + run.missed.total(), arguments.minutes
        print(f"\n{run.rounds} rounds in at most {minutes:g} minutes, {faults} faults, {len(run.failures)} failures.")
        return int(bool(run.failures))


if __name__ == "__main__":
    sys.exit(main())
