"""Independent tasks on the caller's Dask cluster, which may lose workers, stop answering or die at any moment.

A worker with another version of this package's source could return other numbers, so every task checks it.
"""

import functools
import gc
import hashlib
import logging
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

from strongticket._version import __version__
from strongticket.errors import MissingExtraError, StrongTicketError, first_line

TIMEOUT_SECONDS = 120.0
CONNECT_SECONDS = 5
TELL_SECONDS = 10.0  # between messages about what we are waiting for
ASK_SECONDS = 2.0  # between requests to the scheduler, while no task finishes
POLL_SECONDS = 0.02
RETRIES = 3  # of a task, if the cluster loses workers or connections
AGAIN = "Run the same command again, on this cluster or another: it resumes from the finished tasks."

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Dask scheduler, and how long to wait for it."""

    address: str  # for example "tcp://10.0.0.1:8786"
    timeout: float = TIMEOUT_SECONDS  # seconds without a finished task or a sign of life from any worker
    warn: Callable[[str], object] = warnings.warn  # called every ten seconds of waiting with the reason


@functools.cache
def package() -> str:
    """Identify this package: its version, and the start of a hash of its source and its table.

    Cached, so that a worker reports the source it has loaded, not what has replaced it on disk since.
    """
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for path in root.rglob("*") if path.suffix in (".py", ".cu", ".npy")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return f"{__version__}, source {digest.hexdigest()[:12]}"


def run_on_cluster(function: Callable[[T], R], tasks: Sequence[T], cluster: Cluster) -> Iterator[tuple[int, R]]:
    """Apply a function to tasks on a cluster; yield (index, result) pairs as they finish."""
    with _connected(cluster) as (distributed, client):
        patience = _Patience(client, cluster)
        while not patience.workers():
            time.sleep(POLL_SECONDS)
        _refuse_other_packages(client, cluster)
        with warnings.catch_warnings():
            # Each task's numbers go to one worker, once. If they were scattered, as Dask suggests, they would exist
            # only on workers and be lost with them; sent with the task, the scheduler can send them again.
            warnings.filterwarnings("ignore", "Sending large graph", UserWarning)
            # Dask itself restarts a dead worker's tasks; retries cover tasks that fail with a lost connection.
            futures = client.map(partial(_with_package, package(), function), tasks, pure=False, retries=RETRIES)
        places = {future.key: index for index, future in enumerate(futures)}
        finished = distributed.as_completed(futures, loop=client.loop, with_results=True)
        while places:
            for future, result in finished.next_batch(block=False):
                _raise_failure(future.status, result, client, cluster)
                yield places.pop(future.key), result
                patience.renew()
            patience.workers()
            time.sleep(POLL_SECONDS)


def _with_package(expected: str, function: Callable[[T], R], task: T) -> R:
    """Run a task on a worker; check the package, because a worker that joined late has not been checked."""
    if package() != expected:
        raise StrongTicketError(f"this worker has strongticket {package()}")
    return function(task)


def _raise_failure(status: str, result: Any, client: Any, cluster: Cluster) -> None:
    """Raise what a task raised. Dask returns a failure as a result: a cancellation, or (type, error, traceback).

    The status alone is not enough: a result that has arrived may since have been lost on its worker.
    """
    match result:
        case BaseException():
            raise _lost(cluster)
        case (_, BaseException() as error, traceback) if status == "error":
            _refuse_other_packages(client, cluster)
            if _is_from_dask(error):  # such as KilledWorker
                raise StrongTicketError(f"the Dask cluster at {cluster.address} failed: {first_line(error)} {AGAIN}")
            raise error.with_traceback(traceback)


def _lost(cluster: Cluster) -> StrongTicketError:
    return StrongTicketError(f"the Dask scheduler at {cluster.address} went away. {AGAIN}")


class _Patience:
    """Track how long a cluster's workers have been silent; report it now and then, and give up in the end."""

    def __init__(self, client: Any, cluster: Cluster) -> None:
        self._client, self._cluster = client, cluster
        self._pause = min(ASK_SECONDS, cluster.timeout / 4)
        self._heartbeats: dict[str, float] = {}  # by worker, on the scheduler's clock
        self._next = self._reported = self._heard = time.monotonic()

    def renew(self) -> None:
        """Restart the wait, after a task has finished."""
        self._heard = time.monotonic()
        self._next = self._heard + self._pause

    def workers(self) -> bool:
        """Return whether there was a worker at the last check; check again when due, and raise if it is too late."""
        if self._client.status != "running":
            raise _lost(self._cluster)
        if time.monotonic() >= self._next:
            missing = self._missing()
            if missing is None:
                self.renew()
            else:
                self._bear(missing)
        return bool(self._heartbeats)

    def _missing(self) -> str | None:
        """Ask the scheduler for live workers; return what is wrong if there are none."""
        try:
            answer = self._client.sync(
                self._client.scheduler.identity, callback_timeout=min(TELL_SECONDS, self._cluster.timeout / 4)
            )
        except OSError:  # timeouts and broken connections
            return "the scheduler does not answer"
        before, now = self._heartbeats, answer["workers"]
        self._heartbeats = {worker: about["last_seen"] for worker, about in now.items()}
        if any(heard > before.get(worker, -1.0) for worker, heard in self._heartbeats.items()):
            return None
        return "none of its workers answer" if now else "it has no workers"

    def _bear(self, missing: str) -> None:
        now, address, limit = time.monotonic(), self._cluster.address, self._cluster.timeout
        if now - self._heard >= limit:
            raise StrongTicketError(f"waited {limit:g} s for the Dask cluster at {address}: {missing}. {AGAIN}")
        if now - max(self._reported, self._heard) >= TELL_SECONDS:
            self._cluster.warn(f"waiting for the Dask cluster at {address}: {missing} ({now - self._heard:.0f} s)")
            self._reported = now
        self._next = min(now + self._pause, self._heard + limit)


def _refuse_other_packages(client: Any, cluster: Cluster) -> None:
    """Raise if a worker's package is not the caller's: its numbers could differ."""
    try:
        answers = _within(cluster.timeout, lambda: client.run(package, on_error="return"))
    except OSError as error:
        raise StrongTicketError(
            f"workers of the Dask cluster at {cluster.address} do not answer ({first_line(error)}). {AGAIN}"
        ) from None
    for worker, theirs in answers.items():
        # A worker that has died meanwhile does no harm; one that cannot even answer has another release.
        if theirs != package() and not isinstance(theirs, OSError):
            has = first_line(theirs) if isinstance(theirs, Exception) else theirs
            raise StrongTicketError(
                f"worker {worker} has another strongticket ({has}) than this machine ({package()}), "
                "so its numbers could differ. Install the same version there and restart it."
            )


@contextmanager
def _connected(cluster: Cluster) -> Iterator[tuple[Any, Any]]:
    try:
        distributed: Any = import_module("distributed")  # it has no types
    except ModuleNotFoundError:
        raise MissingExtraError("running on Dask needs distributed: pip install 'strongticket[cluster]'") from None
    with _quiet():
        client = _connect(distributed, cluster.address)
        try:
            yield distributed, client
        finally:
            # Closing cancels tasks that are no longer needed. A scheduler that does not answer is left alone.
            with suppress(OSError):
                _within(CONNECT_SECONDS, client.close)


def _connect(distributed: Any, address: str) -> Any:
    try:
        return distributed.Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        reason = first_line(error)
    # The half-made client closes itself when it is collected. Collect it now: later, the next client may hold the lock
    # it needs, and both would wait forever.
    gc.collect()
    raise StrongTicketError(
        f"no Dask scheduler answers at {address!r} ({reason}). "
        "Start one with `dask scheduler` and use the address it prints."
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's messages about lost connections: we raise our own errors."""
    loggers = [logging.getLogger(name) for name in ("distributed", "distributed.client", "distributed.core")]
    before = [logger.level for logger in loggers]
    # Its event loop logs what Dask leaves unhandled, with a traceback, and may be the caller's as well.
    loop = logging.getLogger("tornado.application")
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    loop.addFilter(_is_not_from_dask)
    try:
        yield
    finally:
        loop.removeFilter(_is_not_from_dask)
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _is_not_from_dask(record: logging.LogRecord) -> bool:
    return not (record.exc_info and _is_from_dask(record.exc_info[1]))


def _is_from_dask(error: BaseException | None) -> bool:
    return type(error).__module__.partition(".")[0] == "distributed"


def _within(seconds: float, call: Callable[[], R]) -> R:
    """Call a function that may never return; raise a TimeoutError if it takes longer than this."""
    outcome: list[R | BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimeoutError(f"no answer within {seconds:g} s")
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]
