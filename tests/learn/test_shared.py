import gc
import weakref
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from tests.two_processes import in_two_processes
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from strongticket import search
from strongticket.errors import StrongTicketError
from strongticket.learn.shared import shared_search


@pytest.mark.parametrize("fails", [False, True])
def test_wrapped_models_are_gone_when_their_group_ends(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If DDP is the last to let go of a gloo group, a process hangs now and then, all work done."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in {"TORCHELASTIC_RUN_ID": "test", "LOCAL_RANK": "0", **alone}.items():
        monkeypatch.setenv(name, value)
    models: list[weakref.ref[nn.Module]] = []
    alive: list[bool] = []
    end_group = dist.destroy_process_group
    monkeypatch.setattr(dist, "destroy_process_group", lambda: (alive.append(models[0]() is not None), end_group()))

    def search() -> None:
        wrapped = DistributedDataParallel(nn.Linear(2, 2))
        models.append(weakref.ref(wrapped))
        wrapped(torch.ones(1, 2)).sum().backward()
        if fails:
            try:
                raise KeyboardInterrupt
            except KeyboardInterrupt:
                raise StrongTicketError("stopped") from None

    def shared() -> None:
        with shared_search("cpu"):
            search()

    gc.disable()  # a collection by chance would be no credit to anybody
    try:
        with pytest.raises(StrongTicketError, match="stopped") if fails else nullcontext():
            shared()
    finally:
        gc.enable()
    assert alive == [False]


def _wrapped_models_after_a_search(rank: int) -> int:
    gc.disable()
    torch.manual_seed(rank)
    search(nn.Linear(4, 4), [torch.randn(8, 4) for _ in range(3)], loss=lambda model, x: model(x).square().mean())
    return sum(isinstance(thing, DistributedDataParallel) for thing in gc.get_objects())


def test_a_search_in_a_group_of_the_callers_leaves_no_wrapped_model() -> None:
    assert in_two_processes(_wrapped_models_after_a_search) == [0, 0]
