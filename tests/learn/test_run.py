import json
import math
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from strongticket import Ticket
from strongticket.cli.main import app
from strongticket.data.text import Text, load_text
from strongticket.data.windows import Tokens
from strongticket.errors import StrongTicketError
from strongticket.files import Json
from strongticket.learn.config import RunConfig
from strongticket.learn.evaluate import evaluate_ticket, validation_loss
from strongticket.learn.folder import RunFolder
from strongticket.learn.policy import Policy
from strongticket.learn.run import Means, Moment, StoppedError
from strongticket.learn.shared import Share
from strongticket.learn.text_run import run
from strongticket.learn.train import Training
from strongticket.models.gpt2 import GPT2, gpt2_config, group_of

ALONE = Share(0, 1, torch.device("cpu"))
TINY = RunConfig(
    size="nano", length=128, sequences=8, micro_batch=4, steps=24, warmup=4, lr=1e-2, final_lr=1e-3, validate_every=12
)
# The same run as a command; one thread, so that sums have one order however many processes share the machine.
COMMAND = shlex.split(
    "--size nano --tokenizer bytes --length 128 --sequences 8 --micro-batch 4 --steps 24 --warmup 4 --lr 1e-2 "
    "--final-lr 1e-3 --validate-every 12 --device cpu --data"
)
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Sums in one order, as in the commands; and no threads that wait for each other on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def text(short_sample: Path) -> Text:
    return load_text(str(short_sample), tokenizer="bytes")


def start(
    data: Path, out: Path, *more: str, launcher: tuple[str, ...] = ("-m", "strongticket")
) -> "subprocess.Popen[str]":
    command = [sys.executable, *launcher, "search", *COMMAND, str(data), "--out", str(out), *more]
    return subprocess.Popen(command, env=ONE_THREAD, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> tuple[str, str]:
    out, error = process.communicate(timeout=240)
    assert process.returncode == 0, error
    return out, error


def files(folder: Path) -> tuple[bytes, bytes]:
    return (folder / "best.ticket").read_bytes(), (folder / "result.json").read_bytes()


@pytest.fixture(scope="module")
def unbroken(text: Text, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("unbroken")
    run(TINY, text, out, Means(share=ALONE))
    return out


def test_a_search_learns_and_keeps_its_best(text: Text, tmp_path: Path) -> None:
    moments: list[tuple[int, float]] = []

    def watch(moment: Moment) -> None:
        moments.append((moment.step, moment.loss))

    result = run(replace(TINY, policy=Policy(output_gain=8.0)), text, tmp_path, Means(share=ALONE), watch=watch)
    (_, untrained), *_, (last, final) = result["curve"]
    assert last == 24
    assert final < untrained - 1
    assert result["best_validation_loss"] == min(loss for _, loss in result["curve"])
    assert moments[-1][0] == 24
    assert not (tmp_path / "checkpoint.pt").exists()
    ticket = Ticket.load(tmp_path / "best.ticket")
    assert ticket.strong
    assert ticket.density == pytest.approx(0.3, abs=1e-3)
    assert ticket.identity == result["found"]["identity"]
    evaluation = evaluate_ticket(ticket, text)
    assert evaluation.loss == result["best_validation_loss"]


def test_nonzero_counts_the_best_and_not_the_last(text: Text, tmp_path: Path) -> None:
    # A rate that grows too high: the loss falls and then rises, while groups trade weights.
    policy = Policy(scope="global", norms="trained", output_gain=8.0)
    config = replace(TINY, policy=policy, steps=12, warmup=11, validate_every=2, lr=3.0, final_lr=3.0)
    result = run(config, text, tmp_path, Means(share=ALONE))
    assert 0 < result["best_step"] < config.steps
    ticket = Ticket.load(tmp_path / "best.ticket")
    kept = {name: tensor.mask.count() for name, tensor in ticket.tensors.items()}
    kept |= {name: tensor.value.numel() for name, tensor in ticket.dense.items() if tensor.trained}
    embeddings = sum(count for name, count in kept.items() if group_of(name) == "embeddings")
    assert result["nonzero"] == {"all": sum(kept.values()), "without_embeddings": sum(kept.values()) - embeddings}


def test_dense_training_is_the_same_loop(text: Text, tmp_path: Path) -> None:
    result = run(replace(TINY, mode="dense", lr=1e-3), text, tmp_path, Means(share=ALONE))
    assert result["curve"][-1][1] < result["curve"][0][1] - 0.5
    assert "policy" not in result["config"]
    weights = load_file(tmp_path / "model.safetensors")
    model = GPT2(gpt2_config("nano", context=TINY.length))
    model.load_state_dict(weights)
    loss = validation_loss(model, text.valid, length=TINY.length, sequences=4, device="cpu")
    assert loss == result["best_validation_loss"]


def test_a_finished_run_is_not_done_again(text: Text, tmp_path: Path) -> None:
    means = Means(share=ALONE, keep=False)
    first = run(replace(TINY, steps=4), text, tmp_path, means)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    assert run(replace(TINY, steps=4), text, tmp_path, means) == json.loads(json.dumps(first))
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_other_settings_are_refused(text: Text, tmp_path: Path) -> None:
    means = Means(share=ALONE, keep=False)
    run(replace(TINY, steps=4), text, tmp_path, means)
    with pytest.raises(StrongTicketError, match=r"other settings \(policy.density: 0.3 there, 0.5 here\)"):
        run(replace(TINY, steps=4, policy=Policy(density=0.5)), text, tmp_path, means)
    with pytest.raises(StrongTicketError, match=r"other settings \(its text or its tokenizer has changed since\)"):
        run(replace(TINY, steps=4), replace(text, splits={"train": text.splits["valid"]}), tmp_path, means)
    (tmp_path / "config.json").unlink()  # the result has its settings, too
    with pytest.raises(StrongTicketError, match=r"other settings \(policy.density: 0.3 there, 0.5 here\)"):
        run(replace(TINY, steps=4, policy=Policy(density=0.5)), text, tmp_path, means)


def test_a_rule_is_the_same_however_its_settings_are_written(text: Text, tmp_path: Path) -> None:
    means = Means(share=ALONE, keep=False)

    def run_of(rule: str) -> Json:
        return run(replace(TINY, steps=4, policy=Policy(rule=rule)), text, tmp_path, means)

    first = run_of("iterand:every=5,rate=0.2")
    assert run_of("iterand:rate=0.20,every=5") == json.loads(json.dumps(first))
    with pytest.raises(StrongTicketError, match=r"other settings \(policy\.rule\.rate: 0\.2 there, 0\.3 here\)"):
        run_of("iterand:rate=0.3,every=5")


def test_a_killed_run_ends_with_the_bytes_of_an_unbroken_one(
    unbroken: Path, short_sample: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = start(short_sample, tmp_path, "--checkpoint-seconds", "0")
    folder = tmp_path / "seed-0"
    wait_for(folder / "checkpoint.pt", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (folder / "result.json").exists()
    arguments = ["search", *COMMAND, str(short_sample), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["strongticket", *arguments])
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert files(folder) == files(unbroken)
    assert set(os.listdir(folder)) == set(os.listdir(unbroken)), "nothing is left behind"
    circumstances = json.loads((folder / "run.json").read_text())
    assert circumstances["resumed_at_step"] in (10, 12, 20)
    assert circumstances["command"].startswith("strongticket search ")
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert steps == [0, 10, 12, 12, 20, 24, 24]


@pytest.mark.parametrize(
    ("step", "told"),
    [(10, "Stopped after step 10 of 24; the same command resumes"), (24, "after the last step; the run is finished")],
)
def test_ctrl_c_keeps_the_step_that_was_under_way(
    step: int, told: str, text: Text, tmp_path: Path, unbroken: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupt(moment: Moment) -> None:
        if moment.step == step != moment.validated:  # once: a second signal would end the process
            signal.raise_signal(signal.SIGINT)

    try:
        with pytest.raises(StoppedError, match=told):
            run(TINY, text, tmp_path, Means(share=ALONE), watch=interrupt)
        if (checkpoint := tmp_path / "checkpoint.pt").exists():
            state = torch.load(checkpoint, weights_only=True)
            assert state["tasks"] == [{}]
            assert state["curve"][0][0] == 0
            assert state["metrics_lines"] == 2
        seen: list[int] = []
        run(TINY, text, tmp_path, Means(share=ALONE), watch=lambda moment: seen.append(moment.step))
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen[:1] == ([step] if step < TINY.steps else []), "one sees at once where it goes on"
    assert files(tmp_path) == files(unbroken)


def test_two_processes_find_the_masks_of_one(unbroken: Path, short_sample: Path, tmp_path: Path) -> None:
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "strongticket")
    _, told = finish(start(short_sample, tmp_path, launcher=torchrun))
    assert "Warning" not in told
    ours, theirs = (Ticket.load(folder / "best.ticket") for folder in (tmp_path / "seed-0", unbroken))
    assert ours.identity == theirs.identity
    assert json.loads((tmp_path / "seed-0" / "run.json").read_text())["processes"] == 2


def test_nan_stops_the_run_at_its_step(text: Text, tmp_path: Path) -> None:
    wild = replace(TINY, mode="dense", lr=1e30, warmup=0)
    with pytest.raises(StrongTicketError, match=r"training loss is (nan|inf) at step \d+; no checkpoint .* --lr"):
        run(wild, text, tmp_path, Means(share=ALONE))


@pytest.mark.parametrize("moment", ["__init__", "advance"])
def test_a_full_gpu_is_one_line(moment: str, text: Text, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 6.13 GiB. GPU 0 has\na capacity of 8 GiB")

    monkeypatch.setattr(Training, moment, full)
    told = r"^CUDA out of memory: nano, 4 sequences of 128 tokens per forward pass\. Free .* smaller --micro-batch\.$"
    with pytest.raises(StrongTicketError, match=told):
        run(TINY, text, tmp_path, Means(share=ALONE))


def test_a_broken_checkpoint_is_named(text: Text, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(
        StrongTicketError, match=r"checkpoint.pt cannot be read \(it is truncated.*\. Delete it to start"
    ):
        run(TINY, text, tmp_path, Means(share=ALONE))


def test_a_checkpoint_of_other_settings_is_refused(text: Text, tmp_path: Path) -> None:
    other = RunFolder(tmp_path, {**replace(TINY, seed=7).as_json(), "text": text.describe()}, RunConfig)
    with other.opened(writes=True):
        other.save_checkpoint({"step": 12, "curve": []})
    (tmp_path / "config.json").unlink()
    with pytest.raises(StrongTicketError, match=r"checkpoint.pt belongs to a run with other settings \(seed: 7 there"):
        run(TINY, text, tmp_path, Means(share=ALONE))
    torch.save({"step": 12}, tmp_path / "checkpoint.pt")
    with pytest.raises(StrongTicketError, match=r"checkpoint.pt cannot be read"):
        run(TINY, text, tmp_path, Means(share=ALONE))


def test_metrics_that_are_not_ours_are_named(text: Text, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"no metrics\n")
    with pytest.raises(
        StrongTicketError, match=r"metrics.jsonl is not a run's JSON lines .*; repair it, or choose another"
    ):
        run(TINY, text, tmp_path, Means(share=ALONE))


def test_a_folder_in_the_place_of_a_checkpoint_is_named(text: Text, tmp_path: Path) -> None:
    """It is no full disk: what helps are the system's words."""

    def block(moment: Moment) -> None:
        if moment.step == 0:
            (tmp_path / "checkpoint.pt").mkdir()  # the next checkpoint makes it the previous one

    told = r"checkpoint.pt could not be written \(.*not a regular file: .*\); an earlier one is kept\. Mend that; then"
    with pytest.raises(StrongTicketError, match=told):
        run(TINY, text, tmp_path, Means(share=ALONE, checkpoint_seconds=0), watch=block)


@pytest.mark.parametrize("name", ["config.json", "result.json"])
@pytest.mark.parametrize("content", ["[]", "3", '{"config": 3}', '{"config": []}'])
def test_a_file_that_no_run_writes_is_named(name: str, content: str, text: Text, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    told = rf"{name} is not what a run writes; move" if name == "result.json" or content[0] != "{" else "other settings"
    with pytest.raises(StrongTicketError, match=told):
        run(TINY, text, tmp_path, Means(share=ALONE))


def test_a_full_disk_leaves_no_half_checkpoint(text: Text, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StrongTicketError, match=r"written \(.*File too large.*none yet\. Mend that; then the same"):
            run(TINY, text, tmp_path, Means(share=ALONE, checkpoint_seconds=0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "metrics.jsonl"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": "huge"}, "unknown GPT-2 size 'huge'"),
        ({"micro_batch": 3}, "multiple of micro_batch"),
        ({"warmup": 30}, "the warm-up must be 0 to"),
        ({"lr": math.inf}, "the learning rate must be above 0 and finite"),
        ({"mode": "both"}, "search or dense"),
        ({"validate_every": 0}, "validate_every must be at least 1"),
        ({"weight_decay": -1.0}, "weight_decay must be 0 or more"),
    ],
)
def test_settings_are_checked(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TINY, **changes)  # type: ignore[arg-type]


def test_a_text_shorter_than_a_sequence_is_refused_and_nothing_is_written(text: Text, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"the train text has .* tokens, but one sequence of length 400,000"):
        run(replace(TINY, length=400_000), text, tmp_path / "run", Means(share=ALONE))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        (np.zeros(128, np.uint16), r"the text novel has 128 tokens, but one sequence of length 128 .* need 129"),
        (np.arange(257, dtype=np.uint16), r"the text novel has the token 256, but the run's tokenizer, bytes, has"),
    ],
)
def test_other_texts_are_checked_before_the_run(tokens: Tokens, message: str, text: Text, tmp_path: Path) -> None:
    also = {"sample": text.valid, "novel": tokens}
    with pytest.raises(ValueError, match=message):
        run(replace(TINY, steps=1, warmup=0), text, tmp_path / "run", Means(share=ALONE, also=also))
    assert not (tmp_path / "run").exists()


def test_other_texts_are_measured_at_the_best_step(text: Text, tmp_path: Path) -> None:
    also = {"again": text.valid, "shortest": text.valid[:129]}
    result = run(replace(TINY, steps=1, warmup=0), text, tmp_path, Means(share=ALONE, also=also))
    assert result["also"]["again"] == result["best_validation_loss"]
    assert result["also"]["shortest"] > 0


def wait_for(path: Path, process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.001)
