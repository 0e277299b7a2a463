"""Map a function over independent tasks: in this process, in local processes, or on the caller's Dask cluster.

Every task runs on one thread, wherever it runs. So processes do not compete for cores, and float sums keep one order:
results are the same bits for any number of workers.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from strongticket.cluster import Cluster, run_on_cluster
from strongticket.errors import StrongTicketError

if TYPE_CHECKING:
    import torch

# GPT-2 nano has 0.1 million with bytes, 3 million with GPT-2's tokens; the next size has 13 or more.
FEW_WEIGHTS = 1_000_000

T = TypeVar("T")
R = TypeVar("R")


def run_tasks(
    function: Callable[[T], R],
    tasks: Sequence[T],
    *,
    workers: int = 1,
    dask: str | Cluster | None = None,
    progress: Callable[[int, R], object] | None = None,
) -> Iterator[R]:
    """Apply a pure function to every task and yield the results in task order.

    Args:
        function: importable by name, so that other processes can find it.
        tasks: the function's arguments.
        workers: local processes; with 1, tasks run in this process.
        dask: a cluster, or the address of its Dask scheduler; `workers` is then ignored. It needs the same source of
            this package.
        progress: called with a task's index and result as soon as it is done, in any order. Save results here, because
            an interruption may come before they are yielded.

    Example:
        >>> list(run_tasks(abs, [-3, 2]))
        [3, 2]
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1; got {workers}.")
    if dask is not None and tasks:
        cluster = Cluster(dask) if isinstance(dask, str) else dask
        finished = run_on_cluster(partial(_on_one_thread, function), tasks, cluster)
    elif workers == 1 or len(tasks) < 2:
        finished = _here(function, tasks)
    else:
        finished = _in_processes(function, tasks, min(workers, len(tasks)))
    return _in_order(finished, progress)


def available_cores() -> int:
    """Count the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def numba_threads() -> int:
    """Return the number of threads numba is set to use, without changing torch's.

    Both store it in OpenMP, and numba sets it to all cores the first time it is asked.
    """
    import numba
    import torch

    before = torch.get_num_threads()
    threads: int = numba.get_num_threads()
    if torch.get_num_threads() != before:
        torch.set_num_threads(before)
    return threads


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and numba use one thread inside the `with` block."""
    import numba
    import torch

    before = torch.get_num_threads(), numba_threads()
    _use_one_thread()
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def one_thread_for_small(weights: int, device: "torch.device | str") -> None:
    """Limit torch to one thread for a small model, for which several threads would only wait for each other.

    Args:
        weights: the model's number of weights.
        device: where it runs; only a CPU's threads matter.
    """
    import torch

    if torch.device(device).type == "cpu" and weights < FEW_WEIGHTS:
        torch.set_num_threads(1)


def _use_one_thread() -> None:
    import numba
    import torch

    numba.set_num_threads(1)
    torch.set_num_threads(1)  # last, as in `numba_threads`


def _on_one_thread(function: Callable[[T], R], task: T) -> R:
    _use_one_thread()
    return function(task)


def _in_order(finished: Iterable[tuple[int, R]], progress: Callable[[int, R], object] | None) -> Iterator[R]:
    """Put (index, result) pairs back into order."""
    waiting: dict[int, R] = {}
    turn = 0
    for index, result in finished:
        if progress is not None:
            progress(index, result)
        waiting[index] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1


def _here(function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[tuple[int, R]]:
    for index, task in enumerate(tasks):
        with one_thread():
            result = function(task)
        yield index, result


def _in_processes(function: Callable[[T], R], tasks: Sequence[T], workers: int) -> Iterator[tuple[int, R]]:
    # Forking a process in which torch or numba has started threads can hang the child, so workers are spawned.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, context, initializer=_start_worker)
    try:
        with _ctrl_c_waits():
            futures = {pool.submit(function, task): index for index, task in enumerate(tasks)}
        for future in as_completed(futures):
            yield futures[future], _result_of(future)
    except BaseException:
        # Stop workers in the middle of their tasks: nothing needs the results, and a task may take minutes.
        for process in list((pool._processes or {}).values()):  # `terminate_workers` is public from Python 3.14 on
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Delay Ctrl-C until after the block, and block it in processes started there, which would print tracebacks."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # children inherit it
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _result_of(future: Future[R]) -> R:
    try:
        return future.result()
    except BrokenProcessPool:
        raise StrongTicketError(
            "a worker process died: it ran out of memory (try fewer workers), or a script started workers outside "
            "if __name__ == '__main__'."
        ) from None


def _start_worker() -> None:
    """Set up a local worker process: one thread, Ctrl-C left to the parent, and exit when the parent exits."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _use_one_thread()


def _die_with_parent() -> None:
    # A killed parent does not shut its workers down, and they would wait for tasks forever.
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)
