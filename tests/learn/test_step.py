import pytest
import torch
import torch.distributed as dist
from tests.two_processes import in_two_processes
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import parametrize

from strongticket.learn.step import Step, StepConfig, make_optimizer
from strongticket.models.gpt2 import GPT2, gpt2_config, initial_scales
from strongticket.ops.supermask import Refresh, Supermask, reference

TOKENS = torch.randint(256, (4, 33), generator=torch.Generator().manual_seed(0))


def batches(tokens: Tensor, count: int) -> list[tuple[Tensor, Tensor]]:
    return [(part[:, :-1], part[:, 1:]) for part in tokens.chunk(count)]


def nano() -> GPT2:
    return GPT2(gpt2_config("nano", n_layers=1, output_gain=4.0), seed=3)


def masked_nano() -> tuple[GPT2, Refresh]:
    model, supermasks = nano().requires_grad_(False), []
    generator = torch.Generator().manual_seed(1)
    for name in initial_scales(model.config):
        layer = model.get_submodule(name.removesuffix(".weight"))
        supermasks.append(Supermask(torch.rand(layer.weight.shape, generator=generator) - 0.5, 0.3))
        parametrize.register_parametrization(layer, "weight", supermasks[-1])
    return model, Refresh(supermasks)


def search_step(config: StepConfig) -> tuple[Step, Refresh]:
    model, refresh = masked_nano()
    optimizer = make_optimizer((p for p in model.parameters() if p.requires_grad), lr=0.02)
    return Step(model, optimizer, config, refresh=refresh), refresh


def sgd_step(model: nn.Module, config: StepConfig) -> Step:
    """Plain descent, so that a step's change of a parameter is its gradient."""
    return Step(model, torch.optim.SGD(model.parameters(), lr=1.0), config)


def changes(before: nn.Module, after: nn.Module) -> list[Tensor]:
    return [old.detach() - new.detach() for old, new in zip(before.parameters(), after.parameters(), strict=True)]


@pytest.mark.parametrize("compiler", [None, "aot_eager"])
def test_micro_batches_add_up_to_the_gradient_of_the_batch(compiler: str | None) -> None:
    model, expected = nano(), nano()
    expected(*batches(TOKENS, 1)[0]).backward()
    loss = sgd_step(model, StepConfig(compiler=compiler))(batches(TOKENS, 4))
    torch.testing.assert_close(loss, nano()(*batches(TOKENS, 1)[0]))
    for actual, parameter in zip(changes(nano(), model), expected.parameters(), strict=True):
        torch.testing.assert_close(actual, parameter.grad, rtol=1e-4, atol=1e-6)
        assert parameter.grad is not None
    assert all(p.grad is None for p in model.parameters())


def test_clipping_bounds_the_whole_gradient_and_keeps_its_direction() -> None:
    free, clipped = nano(), nano()
    sgd_step(free, StepConfig())(batches(TOKENS, 2))
    sgd_step(clipped, StepConfig(clip=1e-3))(batches(TOKENS, 2))
    whole, part = (torch.cat([change.flatten() for change in changes(nano(), model)]) for model in (free, clipped))
    assert whole.norm() > 1e-2
    assert part.norm().item() == pytest.approx(1e-3, rel=1e-2)
    assert torch.cosine_similarity(whole, part, dim=0) > 0.999


def test_masks_follow_the_scores_and_the_loss_falls() -> None:
    step, refresh = search_step(StepConfig())
    before = [m.mask.clone() for m in refresh.supermasks]
    losses = [step(batches(TOKENS, 2)).item() for _ in range(12)]
    assert losses[-1] < losses[0] - 1
    for m, old in zip(refresh.supermasks, before, strict=True):
        assert torch.equal(m.mask, reference.top_mask(m.scores, 0.3))
        assert not torch.equal(m.mask, old)


def test_the_learning_rate_is_the_one_set_last() -> None:
    model = nano()
    step = Step(model, make_optimizer(model.parameters(), lr=1.0))
    step.set_lr(0.0)
    step(batches(TOKENS, 1))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), nano().parameters(), strict=True))
    step.set_lr(1e-2)
    step(batches(TOKENS, 1))
    largest = max(change.abs().max().item() for change in changes(nano(), model))
    assert largest == pytest.approx(1e-2, rel=0.5)  # AdamW moves by about its rate


def test_bfloat16_is_near_float32_and_keeps_gradients_in_float32() -> None:
    exact, rounded = nano(), nano()
    sgd_step(exact, StepConfig())(batches(TOKENS, 2))
    # oneDNN's bfloat16 products crash on virtual machines that list AMX and refuse it.
    with torch.backends.mkldnn.flags(enabled=False):
        sgd_step(rounded, StepConfig(precision="bfloat16"))(batches(TOKENS, 2))
    for a, b in zip(changes(nano(), exact), changes(nano(), rounded), strict=True):
        assert b.dtype == torch.float32
        assert (a - b).norm() < 0.1 * a.norm() + 1e-5  # a key bias has no gradient but rounding
    assert not all(torch.equal(a, b) for a, b in zip(exact.parameters(), rounded.parameters(), strict=True))


def test_a_loss_of_the_callers_own() -> None:
    model = nn.Linear(3, 1)
    step = Step(
        model, make_optimizer(model.parameters(), lr=0.05), loss=lambda run, pair: (run(pair[0]) - pair[1]).abs().mean()
    )
    x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    pair = (x, x.sum(1, keepdim=True))
    first = step.loss(pair)
    for _ in range(100):
        step([pair])
    assert step.loss(pair) < 0.2 * first


# --- Two processes ---------------------------------------------------------------------------------------------------


def _masks_after_three_steps(rank: int) -> list[Tensor]:
    step, refresh = search_step(StepConfig())
    for _ in range(3):
        step([batches(TOKENS, 2)[rank]])
    return [m.mask for m in refresh.supermasks]


def test_two_processes_find_the_masks_of_one_that_accumulates() -> None:
    first, second = in_two_processes(_masks_after_three_steps)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the processes do: sums in another order round differently
    try:
        step, refresh = search_step(StepConfig())
        before = [m.mask.clone() for m in refresh.supermasks]
        for _ in range(3):
            step(batches(TOKENS, 2))
    finally:
        torch.set_num_threads(threads)
    for a, b, alone, initial in zip(first, second, [m.mask for m in refresh.supermasks], before, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, alone)
        assert not torch.equal(alone, initial)


def _gradients_sent(rank: int) -> int:
    sent = 0

    def count(state: None, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
        nonlocal sent
        sent += bucket.buffer().numel()
        future: torch.futures.Future[Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    step, _ = search_step(StepConfig(compiler="aot_eager"))
    assert isinstance(step.module, DistributedDataParallel)
    step.module.register_comm_hook(None, count)
    step(batches(TOKENS, 4))
    return sent


def test_gradients_are_sent_once_a_step_however_many_micro_batches() -> None:
    model, _ = masked_nano()
    scores = sum(p.numel() for p in model.parameters() if p.requires_grad)
    assert in_two_processes(_gradients_sent) == [scores, scores]


# --- What cannot work ------------------------------------------------------------------------------------------------


def test_bad_input() -> None:
    with pytest.raises(ValueError, match="float32 or bfloat16; got 'int8'"):
        StepConfig(precision="int8")
    with pytest.raises(ValueError, match=r"positive norm, or None; got 0\.0"):
        StepConfig(clip=0.0)
    with pytest.raises(ValueError, match="got 0, 0 frozen"):
        make_optimizer([], lr=0.1)
    with pytest.raises(ValueError, match="got 1, 1 frozen"):
        make_optimizer([nn.Parameter(torch.ones(2), requires_grad=False)], lr=0.1)
    with pytest.raises(ValueError, match="at least one micro-batch"):
        search_step(StepConfig())[0]([])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_step_never_waits_for_the_gpu() -> None:
    model, refresh = masked_nano()
    model.cuda()
    optimizer = make_optimizer((p for p in model.parameters() if p.requires_grad), lr=0.02)
    step = Step(model, optimizer, StepConfig(precision="bfloat16", clip=1.0), refresh=refresh)
    tokens = TOKENS.cuda()
    step(batches(tokens, 2))  # the first one compiles the kernels
    torch.cuda.set_sync_debug_mode("error")
    try:
        step.set_lr(1e-3)
        step(batches(tokens, 2))
    finally:
        torch.cuda.set_sync_debug_mode("default")
