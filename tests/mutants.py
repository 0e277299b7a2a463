"""Tests that can fail: change the source in one place, run the tests that belong to it, and ask that one of them fails.

    python -m tests.mutants [--sample 400] [--only certify] [--jobs 2] [--out FILE]

Mutants of a seeded sample that no test notices must stand in `harmless_mutants.toml`, with the reason why they do no
harm. Sources are changed in copies. Every mutant runs in a fork of a process that has torch and numba loaded, but not
this package; what was found is remembered for as long as the files are the same.
"""

import argparse
import hashlib
import json
import math
import multiprocessing
import os
import resource
import shutil
import signal
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time
from typing import NamedTuple

import hypothesis
import pytest
import torch

from tests.mutations import Mutation, mutations_of

ROOT = Path(__file__).parents[1]
PACKAGE = Path("src/strongticket")
HARMLESS = Path(__file__).with_name("harmless_mutants.toml")
MEMORY = ROOT / ".pytest_cache" / "mutants"  # a file for each
LEAST_KILLED = 0.95
LONGEST_WAIT = 900.0  # seconds
MOST_MEMORY = 12 << 30

# Loaded once, and not again for every mutant; torch's optimizers load the second.
WARM = "numba torch._dynamo hypothesis.extra.numpy scipy.stats typer.testing transformers.models.gpt2.modeling_gpt2"
# They take long, and ask about time, memory, disks and processes, or what shorter ones of the same file ask too.
LEFT_OUT = (
    "compiled or peak_memory or two_processes or hundred_million or full_disk or ctrl_c or import_is_cheap or 1e8 or "
    "waits_for_the_compiler or mutated_tickets_never_crash or high_effort_comes_closer or more_width_less_error or "
    "theorem_3 or lemma_7_linear or theorem_10_three or with_biases_heads or numpy_or_torch"
)


@dataclass(frozen=True)
class Module:
    """A source file, and the tests that belong to it."""

    path: str
    tests: tuple[str, ...]
    # Every kernel is compiled anew for each mutant; those kept for the other modules stay.
    in_kernels: bool = False
    needs_gpu: tuple[str, ...] = ()  # functions and classes that nothing runs where there is none


_BOUNDS = ("tests/bounds/test_bounds.py", "tests/bounds/test_bounds_certificate.py")
_RECERTIFY = ("tests/construct/test_certify.py", "tests/construct/test_recertify.py")
_FORMAT = (
    "tests/tickets/test_ticket.py",
    "tests/tickets/test_ticket_attacks.py",
    "tests/tickets/test_independent_reader.py",
)
_DIGEST = ("tests/tickets/test_weights_digest.py", "tests/tickets/test_ticket.py")
_PHILOX = ("tests/ops/philox/test_philox.py", "tests/ops/test_rng.py")
_SUBSET_SUM = ("tests/ops/subset_sum/test_checks.py", "tests/ops/subset_sum/test_cpu.py")
_MASKS = ("tests/ops/supermask/test_supermask_masks.py", "tests/ops/supermask/test_supermask_gradient.py")
_HIDE = ("tests/learn/test_hide_gpt2.py", "tests/learn/test_hide_modules.py", "tests/learn/test_search_tickets.py")
_RULES = ("tests/learn/test_rules_plain.py", "tests/learn/test_rules.py", "tests/learn/test_density.py")
_CODES = (
    "tests/tickets/test_codes.py",
    "tests/tickets/test_owners.py",
    "tests/tickets/test_symbols.py",
    "tests/tickets/test_independent_reader.py",
)
_ASSIGNMENT = ("tests/construct/test_assignment.py",)
_SAMPLES = ("tests/construct/test_samples.py",)
_CHANCE = ("tests/construct/test_width_for.py", "tests/bounds/test_adaptive.py")

# The names stand in `harmless_mutants.toml` and choose the sample, so they stay when a file moves.
MODULES = {
    "bounds.certificate": Module("bounds/certificate.py", _BOUNDS),
    "bounds.checks": Module("bounds/checks.py", _BOUNDS),
    "bounds.perturbation": Module("bounds/perturbation.py", _BOUNDS),
    "bounds.theorems": Module("bounds/theorems.py", _BOUNDS),
    "bounds.upward": Module("bounds/upward.py", _BOUNDS),
    "bounds.widths": Module("bounds/widths.py", _BOUNDS),
    "certify": Module("construct/certify.py", (*_RECERTIFY, "tests/construct/test_construct.py")),
    "recertify": Module("construct/recertify.py", _RECERTIFY),
    "mask": Module("tickets/mask.py", ("tests/tickets/test_mask.py", *_FORMAT)),
    "container": Module("tickets/container.py", (*_FORMAT, "tests/test_files.py")),
    "ticket_format": Module("tickets/format.py", _FORMAT),
    "weights_digest": Module("tickets/weights_digest.py", _DIGEST, needs_gpu=("_DrawOnGpu",)),
    "rng": Module("ops/rng.py", ("tests/ops/test_rng.py",)),
    "philox": Module("ops/philox/reference.py", _PHILOX, in_kernels=True),
    "subset_sum": Module("ops/subset_sum/__init__.py", _SUBSET_SUM),
    "subset_sum.checks": Module("ops/subset_sum/checks.py", _SUBSET_SUM),
    "supermask": Module("ops/supermask/__init__.py", (*_MASKS, *_HIDE)),
    "supermask.reference": Module("ops/supermask/reference.py", _MASKS),
    "edge_popup": Module("learn/rules/edge_popup.py", (*_RULES, *_HIDE)),
    "bounds.adaptive": Module("bounds/adaptive.py", ("tests/bounds/test_adaptive.py",)),
    "assignment": Module("construct/assignment.py", _ASSIGNMENT),
    "exchange": Module("construct/exchange.py", _ASSIGNMENT),
    "slots": Module("construct/slots.py", (*_ASSIGNMENT, "tests/construct/test_product.py")),
    "places": Module("construct/places.py", (*_SAMPLES, "tests/pretrained/test_certify.py")),
    "samples": Module("construct/samples.py", _SAMPLES),
    "chance": Module("construct/chance.py", _CHANCE),
    "width_for": Module("construct/width_for.py", _CHANCE),
    "codes": Module("tickets/codes.py", _CODES),
    "coding": Module("tickets/coding.py", (*_CODES, *_FORMAT)),
    "kinds": Module("tickets/kinds.py", (*_CODES, *_FORMAT)),
    "owners": Module("tickets/owners.py", _CODES),
    "symbols": Module("tickets/symbols.py", _CODES),
    "table": Module("tickets/table.py", _CODES),
    "plain_json": Module("tickets/plain_json.py", _FORMAT),
    "tensors": Module(
        "tickets/tensors.py", (*_CODES, *_FORMAT, "tests/learn/test_scales.py", "tests/test_notebook.py")
    ),
    "rans": Module("ops/rans/reference.py", ("tests/ops/rans/test_rans.py", *_CODES), in_kernels=True),
    "density": Module("learn/density.py", ("tests/learn/test_density.py",)),
    "scales": Module("learn/scales.py", ("tests/learn/test_scales.py",)),
    "rule": Module("learn/rules/rule.py", (*_RULES, *_HIDE)),
}
for path in sorted((ROOT / PACKAGE / "learn" / "rules").glob("[a-z]*.py")):
    MODULES.setdefault(path.stem, Module(f"learn/rules/{path.name}", _RULES))


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    mutation: Mutation
    occurrence: int  # among equal changes of equal lines

    @property
    def key(self) -> tuple[str, str, str]:
        """What `harmless_mutants.toml` knows it by; it stays the same when other lines change."""
        which = f" ({self.occurrence})" if self.occurrence > 1 else ""
        return self.module, self.mutation.line, self.mutation.change + which

    def digest(self, seed: int = 0) -> str:
        return hashlib.sha256(repr((seed, self.key)).encode()).hexdigest()


def all_mutants(module: str) -> list[Mutant]:
    seen: Counter[tuple[str, str]] = Counter()
    mutants = []
    without = () if torch.cuda.is_available() else MODULES[module].needs_gpu
    for mutation in mutations_of((ROOT / PACKAGE / MODULES[module].path).read_text(), without):
        seen[mutation.line, mutation.change] += 1
        mutants.append(Mutant(module, mutation, seen[mutation.line, mutation.change]))
    return mutants


def sample(size: int, seed: int) -> list[Mutant]:
    """Take the same share of each module's mutants, in an order that only the seed decides."""
    everything = {module: all_mutants(module) for module in MODULES}
    share = min(1.0, size / sum(map(len, everything.values())))
    exact = {module: share * len(mutants) for module, mutants in everything.items()}
    # Rounded down, and one more for those that lost most.
    most_lost = sorted(exact, key=lambda module: exact[module] % 1, reverse=True)
    more = most_lost[: round(sum(exact.values())) - sum(map(int, exact.values()))]
    chosen = []
    for module, mutants in everything.items():
        mutants.sort(key=lambda mutant: mutant.digest(seed))
        chosen += mutants[: int(exact[module]) + (module in more)]
    return chosen


class Told(NamedTuple):
    """What the tests of a module said."""

    failed: tuple[str, ...]  # the first of them; on the source as it is, all
    seconds: float  # of a core
    durations: dict[str, float]


class Copy:
    """A copy of the sources, to change one file at a time in."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=folder))
        shutil.copytree(ROOT / "src", self.folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
        self.changes = 0
        self.without_mutant: dict[str, Told] = {}

    def failure(self, mutant: Mutant, likely: str | None) -> str | None:
        """Name the first test that notices a mutant; the one that is likely to is asked first."""
        if mutant.module not in self.without_mutant:
            # Tests that fail on the source as it is are left out and told; here they also compile every kernel.
            self.without_mutant[mutant.module] = told = self._run(mutant.module)
            for test in told.failed:
                if "::" not in test:
                    raise RuntimeError(f"{test}, without a mutant:\n{(self.folder / 'log').read_text()}")
                print(f"{mutant.module}: {test} fails without a mutant", file=sys.stderr)
        original = ROOT / PACKAGE / MODULES[mutant.module].path
        path = self.folder / PACKAGE / MODULES[mutant.module].path
        path.write_text(mutant.mutation.apply(original.read_text()))
        # Compiled files are told by the second they are from.
        self.changes += 1
        os.utime(path, (self.changes, self.changes))
        told = self._run(mutant.module, likely)
        shutil.copy2(original, path)
        return next(iter(told.failed), None)

    def _run(self, module: str, likely: str | None = None) -> Told:
        receive, send = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.Process(target=self._tell, args=(module, likely, send))
        process.start()
        send.close()
        try:
            told: Told = receive.recv() if receive.poll(LONGEST_WAIT) else Told(("nothing happens",), math.inf, {})
        except EOFError:
            told = Told(("time limit, or crash",), math.inf, {})
        # Processes that tests leave behind are of its group.
        os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
        return told

    def _tell(self, module: str, likely: str | None, answer: Connection) -> None:
        os.setsid()
        usual = self.without_mutant.get(module, Told((), LONGEST_WAIT, {}))
        seconds = math.ceil(5 + 2 * usual.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        kernels = self.folder / ("fresh" if MODULES[module].in_kernels else "kernels")
        shutil.rmtree(self.folder / "fresh", ignore_errors=True)
        os.environ |= {"PYTHONPATH": str(self.folder / "src"), "NUMBA_CACHE_DIR": str(kernels)}
        import_module("numba").config.CACHE_DIR = str(kernels)
        sys.path.insert(0, str(self.folder / "src"))
        sys.dont_write_bytecode = module in self.without_mutant
        log = os.open(self.folder / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if not Path(import_module("strongticket").__file__ or "").is_relative_to(self.folder):
            raise RuntimeError("the tests would run on other sources than the copy")
        if not MODULES[module].in_kernels:
            import_module("strongticket.ops.compiled")._stamp_of_parts = tuple  # the mutant is in none of them
        tests = Tests(usual, all_of_them=module not in self.without_mutant)
        status = tests.run(likely) if likely else pytest.ExitCode.OK
        if not tests.failed:
            status = tests.run(*MODULES[module].tests)
        failed = tests.failed or ([] if status == pytest.ExitCode.OK else [f"pytest ends with {status!r}"])
        answer.send(Told(tuple(dict.fromkeys(failed)), process_time(), tests.durations))


class Tests:
    """A plugin for pytest: the shortest tests come first, and those that fail are remembered."""

    def __init__(self, usual: Told, all_of_them: bool) -> None:
        self.durations, self.left_out, self.all_of_them = usual.durations, usual.failed, all_of_them
        self.failed: list[str] = []

    def run(self, *tests: str) -> int:
        # Found is enough: nobody reads the smallest example.
        phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
        hypothesis.settings.register_profile("mutants", deadline=None, derandomize=True, database=None, phases=phases)
        options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", "--tb=short"]
        options += [] if self.all_of_them else ["-x"]
        return pytest.main([*options, "-m", "not slow", "-k", f"not ({LEFT_OUT})", *tests], plugins=[self])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self.left_out]
        items.sort(key=lambda item: self.durations.get(item.nodeid, 0.0))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)


_copy: Copy  # each worker's own


def _make_copy(folder: str) -> None:
    global _copy
    _copy = Copy(folder)


def _judge(mutants: list[Mutant], digest: str) -> list[str | None]:
    """Find for each mutant a test that fails, or None; what is known of the same files is not asked again."""
    verdicts = []
    for mutant in mutants:
        memory = MEMORY / mutant.digest()
        known, failed = json.loads(memory.read_text()) if memory.exists() else (None, None)
        if known != digest:
            failed = _copy.failure(mutant, failed if "::" in (failed or "") else None)
            memory.write_text(json.dumps([digest, failed]))
        verdicts.append(failed)
    return verdicts


def digest_of_files(module: str) -> str:
    """Hash all that the tests of a module depend on."""
    helpers = (path for path in ROOT.glob("tests/*.py") if not path.name.startswith(("test_", "mut")))
    tests = (ROOT / test for test in MODULES[module].tests)
    paths = sorted({*(ROOT / PACKAGE).rglob("*.py"), *tests, *helpers})
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def judge(mutants: list[Mutant], jobs: int, out: Path | None) -> dict[Mutant, str | None]:
    """Share mutants out among so many processes: for each one a test that fails, or None. `out` has it, too."""
    MEMORY.mkdir(parents=True, exist_ok=True)
    # One process for all of a module's, since each runs its tests without a mutant first; but none for most of all.
    most, parts = math.ceil(len(mutants) / (2 * jobs)), []
    for module in MODULES:
        of_module = [mutant for mutant in mutants if mutant.module == module]
        parts += [of_module[start : start + most] for start in range(0, len(of_module), most)]
    context, found = multiprocessing.get_context("fork"), {}
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(jobs, context, _make_copy, (folder,)) as pool:
        parts.sort(key=len, reverse=True)
        running = {pool.submit(_judge, part, digest_of_files(part[0].module)): part for part in parts}
        for done in as_completed(running):
            found |= dict(zip(running[done], done.result(), strict=True))
            if out:
                with out.open("a") as file:
                    file.writelines(json.dumps([*mutant.key, found[mutant]]) + "\n" for mutant in running[done])
    return {mutant: found[mutant] for mutant in mutants}


def report(verdicts: dict[Mutant, str | None]) -> bool:
    """Print what was found; True if all is well."""
    rows = tomllib.loads(HARMLESS.read_text())["harmless"]
    harmless = {(row["module"], row["line"], row["change"]): row["why"] for row in rows}
    survivors = [mutant for mutant, failed in verdicts.items() if failed is None]
    counts, left = (Counter(mutant.module for mutant in mutants) for mutants in (verdicts, survivors))
    print(f"{'module':24} mutants  killed  survived")
    for name in counts:
        print(f"{name:24} {counts[name]:7} {counts[name] - left[name]:7} {left[name]:9}")
    for mutant in survivors:
        module, line, change = mutant.key
        why = harmless.get(mutant.key, "NOT LISTED: kill it by a test, or say why it does no harm")
        print(f"\n{module}: {line}\n    {change}\n    {why}")
    unlisted = [mutant for mutant in survivors if mutant.key not in harmless]
    killed = 1 - len(survivors) / max(1, len(verdicts))
    print(f"\n{killed:.1%} of {len(verdicts)} mutants killed; {len(unlisted)} survivors are not listed.")
    return not unlisted and killed >= LEAST_KILLED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=400, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", metavar="MODULE", help="of the sample, the modules that begin so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, metavar="FILE", help="what was found, a line of JSON each, as it comes")
    options = parser.parse_args()
    for library in WARM.split():
        import_module(library)
    mutants = [mutant for mutant in sample(options.sample, options.seed) if mutant.module.startswith(options.only)]
    return 0 if report(judge(mutants, options.jobs, options.out)) else 1


if __name__ == "__main__":
    raise SystemExit(main())
