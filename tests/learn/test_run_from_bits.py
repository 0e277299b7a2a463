"""Networks that run from bits: the same functions as dense ones, in a sixteenth of the memory."""

import copy
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from search_models import (
    IMAGES,
    QkvAttention,
    TorchAttention,
    hugging_face_gpt2,
    nano,
    output_of,
    search,
    vision_transformer,
)
from tests.cuda_emulator import emulated
from torch import Tensor, nn

import strongticket
from strongticket import DenseTensor, Frozen, FullMask, PackedMask, RandomTensor, StrongTicketError, Ticket, attach
from strongticket.learn.generate import generate_tokens
from strongticket.learn.hide import hide
from strongticket.learn.policy import Policy
from strongticket.models import gpt2_step
from strongticket.models.gpt2 import GPT2, gpt2_config
from strongticket.models.gpt2_decoder import Decoder
from strongticket.models.gpt2_layers import LayeredGPT2
from strongticket.models.gpt2_step import is_plain
from strongticket.models.signed import SignedConv, SignedEmbedding, SignedLinear, SignedMatrix, weight_bytes
from strongticket.ops.attention import cuda as attention_cuda
from strongticket.ops.planes import cuda as planes_cuda
from strongticket.tickets.from_bits import Resident, _matrix, load_bits
from strongticket.tickets.mask import Mask

needs_compiler = pytest.mark.skipif(emulated.COMPILER is None, reason="the CUDA emulator needs g++; none found")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
Maker = Callable[[], nn.Module]
MAKERS: dict[str, Maker] = {
    "ours": lambda: nano(output_gain=4.0),
    "ours with biases": lambda: nano(output_gain=4.0, bias=True, tied=False),
    "hugging face": hugging_face_gpt2,
    "qkv": lambda: vision_transformer(QkvAttention),
    "torch attention": lambda: vision_transformer(TorchAttention),
}
SIGNED: dict[str, dict[str, Any]] = {
    "plain": {},
    "mixed": {"embeddings": "trained", "norms": "trained", "biases": "trained", "scales": "output"},
    "frozen": {"attention": "frozen", "head": "frozen", "rescale": True, "qk_scale": 2.0},
}


def signed_ticket(make: Maker, **policy: Any) -> Ticket:
    """Search for two steps, so that masks, scales and trained tensors are no longer as they began."""
    hidden = hide(make(), Policy(init="sign", **policy), seed=5)
    search(hidden, steps=2)
    return hidden.to_ticket()


@pytest.mark.parametrize("policy", SIGNED.values(), ids=SIGNED)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_any_module_from_bits_is_the_same_function(make: Maker, policy: dict[str, Any]) -> None:
    ticket = signed_ticket(make, **policy)
    module = make().eval()
    before = copy.deepcopy(module.state_dict())
    found = attach(module, ticket, run="bits")
    expected = output_of(strongticket.load_ticket(make().eval(), ticket))
    torch.testing.assert_close(output_of(found), expected, rtol=1e-4, atol=1e-5)
    assert any(isinstance(layer, SignedMatrix) for layer in found.modules())
    assert not any(parameter.requires_grad for parameter in found.parameters())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])  # the original stays as it is
    again = attach(make(), ticket, run="bits").eval()
    again.load_state_dict(found.state_dict())
    assert torch.equal(output_of(copy.deepcopy(again)), output_of(found))


@pytest.mark.parametrize("rule", ["signed", "multicoated", "iterand:every=1,rate=0.5", "partially-frozen"])
@pytest.mark.parametrize("scales", ["none", "block"])
def test_rules_with_levels_signs_and_further_draws(rule: str, scales: str) -> None:
    ticket = signed_ticket(nano, rule=rule, scales=scales)
    network = ticket.build(run="bits")
    assert isinstance(network, LayeredGPT2)
    torch.testing.assert_close(
        output_of(network).double(), output_of(ticket.build(dtype=torch.float64)), rtol=1e-4, atol=1e-5
    )


def test_tokens_from_bits_are_those_of_the_dense_network() -> None:
    ticket = signed_ticket(lambda: nano(output_gain=4.0))
    dense, bits = (ticket.build(run=run).eval() for run in ("dense", "bits"))
    texts = [list(generate_tokens(model, [65, 66], tokens=60, seed=1)) for model in (dense, bits)]  # type: ignore[arg-type]
    assert texts[0] == texts[1]
    loss = [float(model(torch.arange(40).view(2, 20), torch.arange(1, 41).view(2, 20))) for model in (dense, bits)]
    assert loss[0] == pytest.approx(loss[1], rel=1e-5)


@pytest.mark.parametrize("resident", ["planes", "mask"])
@pytest.mark.parametrize("changes", [{}, {"activation": "relu", "bias": False, "tied": False, "output_gain": 3.0}])
def test_a_compiled_step_gives_the_logits_of_the_layers_on_any_number_of_threads(
    changes: dict[str, Any], resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {"biases": "trained", "norms": "trained"} if not changes else {"qk_scale": 2.0}
    model = packed(signed_ticket(lambda: nano(**({"bias": True} | changes)), **policy)).build(
        run="bits", resident=resident
    )
    assert is_plain(model)  # type: ignore[arg-type]
    compiled, layers = Decoder(model, room=30), Decoder(model, room=30, static=True)  # type: ignore[arg-type]
    on_threads = {threads: Decoder(model, room=30) for threads in (2, 5)}  # type: ignore[arg-type]
    for tokens in ([5, 6, 7], *([token] for token in range(20))):
        monkeypatch.setattr(gpt2_step, "threads_for", lambda work, least: 1)
        logits = compiled.feed(tokens)
        torch.testing.assert_close(logits, layers.feed(tokens), rtol=1e-4, atol=1e-5)
        for threads, decoder in on_threads.items():
            monkeypatch.setattr(gpt2_step, "threads_for", lambda work, least, threads=threads: threads)
            assert torch.equal(decoder.feed(tokens), logits)


@pytest.mark.parametrize("resident", ["planes", "mask"])
@pytest.mark.parametrize("changes", [{}, {"activation": "relu", "bias": False, "tied": False, "output_gain": 3.0}])
@pytest.mark.parametrize(
    "device", [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=[pytest.mark.gpu, needs_gpu])]
)
def test_kernels_for_one_token_give_the_logits_of_the_layers(
    device: str, changes: dict[str, Any], resident: Resident, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {"biases": "trained", "norms": "trained"} if not changes else {"scales": "output"}
    ticket = packed(signed_ticket(lambda: nano(**({"bias": True} | changes)), **policy))
    model = ticket.build(run="bits", resident=resident)
    layers = Decoder(model, room=30, static=True)  # type: ignore[arg-type]
    if device == "cpu":
        monkeypatch.setattr(planes_cuda, "nvrtc", SimpleNamespace(kernel=emulated.kernel))
        monkeypatch.setattr(planes_cuda, "_processors", lambda device: 2)
        monkeypatch.setattr(attention_cuda.nvrtc, "kernel", emulated.kernel)
    kernels = Decoder(copy.deepcopy(model).to(device), room=30, static=True)  # type: ignore[arg-type]
    step = kernels._kernels()
    assert step
    for tokens in ([5, 6, 7], *([token] for token in range(6))):
        expected = layers.feed(tokens)
        if device == "cpu" and len(tokens) == 1:
            logits = step(torch.tensor([tokens]), torch.tensor([kernels.length]))
            kernels.length += 1
        else:
            logits = kernels.feed(tokens)
        torch.testing.assert_close(logits.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_scales_of_columns_take_the_way_of_the_layers() -> None:
    model = signed_ticket(nano, scales="block").build(run="bits")
    assert not is_plain(model)  # type: ignore[arg-type]
    assert list(generate_tokens(model, [65], tokens=3))  # type: ignore[arg-type]


def packed(ticket: Ticket) -> Ticket:
    """The same masks over packed signs, which "mask" is for."""
    tensors = [replace(tensor, distribution="packed-sign") for tensor in ticket.tensors.values()]
    return Ticket(seed=1, tensors=tensors, dense=ticket.dense.values(), architecture=ticket.architecture)


# --- One tensor ------------------------------------------------------------------------------------------------------


@st.composite
def tensors(draw: st.DrawFn) -> tuple[Ticket, int]:
    """A ticket of one signed tensor under any kind of mask, with scales or without, and the axis of its rows."""
    shape = draw(st.tuples(st.integers(1, 40), st.integers(1, 70)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    table = draw(
        st.sampled_from(
            [
                ((0.0, 0), (1.0, 0)),
                ((0.0, 0), (1.0, 0), (-1.0, 0)),
                ((0.0, 0), (1.0, 0), (2.0, 0), (3.0, 0)),
                ((0.5, 0), (-0.25, 1), (1.0, 2)),
                ((0.0, 0), (1.0, 3), (0.3141, 0), (-40.0, 0)),  # no unit for all
            ]
        )
    )
    codes = torch.randint(len(table), shape, generator=generator)
    mask: Mask = strongticket.coded_mask(codes, table)
    if draw(st.booleans()) and len(table) == 2:
        mask = FullMask(shape)
    elif draw(st.booleans()):
        frozen = Frozen(seed=3, shares=tuple(0.2 / len(table) for _ in table))
        fixed = frozen.codes(codes.numel()).view(shape).long()
        mask = strongticket.coded_mask(torch.where(fixed >= 0, fixed, codes), table, frozen)
    counts = draw(st.sampled_from([None, (1, 1), (shape[0], 1), (1, shape[1]), (2, 2), shape]))
    scales = [] if counts is None else [torch.rand([*map(min, counts, shape)], generator=generator) + 0.5]
    ticket = Ticket(
        seed=11,
        tensors=[
            RandomTensor(name="w", mask=mask, distribution=draw(st.sampled_from(["sign", "packed-sign"])), scale=0.25)
        ],
        dense=[DenseTensor(name="w.scales", value=value) for value in scales],
    )
    return ticket, draw(st.integers(0, 1))


@given(case=tensors(), resident=st.sampled_from(["planes", "mask"]))
def test_a_matrix_holds_the_weights_of_its_tensor(case: tuple[Ticket, int], resident: Resident) -> None:
    ticket, axis = case
    matrix = _matrix(ticket, ticket.tensors["w"], axis, resident)
    expected = ticket.materialize()["w"]
    expected = expected if axis == 0 else expected.T
    if matrix is None:  # only where scales are as many as weights, or nearly
        assert min(ticket.scales["w"].shape) > 1
        return
    torch.testing.assert_close(matrix.dense(), expected, rtol=1e-6, atol=0)
    indices = torch.arange(len(expected)).flip(0)[:3]
    torch.testing.assert_close(matrix.look_up(indices), expected[indices], rtol=1e-6, atol=0)
    x = torch.randn(2, expected.shape[1], generator=torch.Generator().manual_seed(1))
    bound = 1e-5 * (1 + x.abs() @ expected.abs().T)
    assert bool(((matrix(x) - x.double() @ expected.double().T).abs() <= bound).all())


def test_a_mask_alone_takes_half_the_memory_of_planes() -> None:
    config = gpt2_config("nano", d_model=128, bias=False)
    model = GPT2(config, device="meta")
    masks = [
        RandomTensor(name=name, mask=FullMask(tuple(p.shape)), distribution="packed-sign", scale=0.02)
        for name, p in model.named_parameters()
        if p.dim() == 2
    ]
    settings = hide(nano(), seed=0).to_ticket().architecture["config"]
    changed = {**settings, "d_model": 128}
    ticket = Ticket(seed=1, tensors=masks, architecture={"family": "gpt2", "config": changed})
    planes, mask = (ticket.build(run="bits", resident=resident) for resident in ("planes", "mask"))
    norms = sum(parameter.nbytes for parameter in planes.parameters())
    assert weight_bytes(planes) - norms == ticket.numel // 4
    assert weight_bytes(mask) - norms == ticket.numel // 8
    torch.testing.assert_close(output_of(planes), output_of(mask), rtol=1e-5, atol=1e-6)


def test_a_search_can_draw_signs_that_need_no_memory() -> None:
    ticket = hide(nn.Linear(128, 32, bias=False), Policy(init="packed-sign"), seed=0).to_ticket()
    network = attach(nn.Linear(128, 32, bias=False), ticket, run="bits", resident="mask")
    assert weight_bytes(network) == ticket.numel // 8
    torch.testing.assert_close(network.weight, ticket.materialize()["weight"], rtol=1e-6, atol=0)


# --- Layers ----------------------------------------------------------------------------------------------------------


class Tied(nn.Module):
    """One table in two places: looked up, and read by the module itself."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(6, 32)
        self.weight = self.table.weight

    def forward(self, indices: Tensor) -> Tensor:
        return self.table(indices) @ self.weight.T


def single(tensor: str, shape: tuple[int, ...], more: dict[str, Tensor] | None = None) -> Ticket:
    mask = PackedMask.random(shape, 0.5, seed=2)
    return Ticket(
        seed=4,
        tensors=[RandomTensor(name=tensor, mask=mask, distribution="sign", scale=0.5)],
        dense=[DenseTensor(name=name, value=value) for name, value in (more or {}).items()],
    )


@pytest.mark.parametrize(
    ("layer", "x"),
    [
        (nn.Conv2d(3, 5, 3, padding=1), IMAGES),
        (nn.Conv2d(3, 5, (2, 3), stride=(2, 1), dilation=2, padding="valid"), IMAGES),
        (nn.Conv2d(3, 5, 3, padding="same", padding_mode="circular", bias=False), IMAGES[0]),
        (nn.Conv1d(3, 20, 4, stride=3, padding=2), IMAGES[:, :, 0]),
        (nn.Linear(8, 5), IMAGES),
    ],
    ids=["2d", "strides", "circular", "1d", "linear"],
)
def test_a_single_layer(layer: nn.Module, x: Tensor) -> None:
    bias = {"bias": torch.arange(float(len(layer.bias)))} if layer.bias is not None else {}  # type: ignore[arg-type]
    ticket = single("weight", tuple(layer.weight.shape), bias)  # type: ignore[arg-type]
    signed = attach(layer, ticket, run="bits")
    assert isinstance(signed, SignedConv | SignedLinear)
    with torch.no_grad():
        expected = strongticket.load_ticket(layer, ticket)(x)
    torch.testing.assert_close(signed(x), expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(signed.weight, layer.weight.detach())


def test_a_weight_that_is_needed_elsewhere_stays_dense() -> None:
    ticket = single("weight", (6, 32))
    network = attach(Tied(), ticket, run="bits")
    assert isinstance(network.table, nn.Embedding)
    assert torch.equal(network(torch.arange(6)), strongticket.load_ticket(Tied(), ticket)(torch.arange(6)))


def test_a_layer_in_two_places_is_one() -> None:
    layer = nn.Linear(4, 4, bias=False)
    ticket = single("0.weight", (4, 4))
    network = attach(nn.Sequential(layer, nn.ReLU(), layer), ticket, run="bits")
    assert network[0] is network[2]  # type: ignore[index]
    assert isinstance(network[0], SignedLinear)  # type: ignore[index]


def test_other_precisions_go_through() -> None:
    network = attach(nn.Linear(4, 4, bias=False), single("weight", (4, 4)), run="bits")
    assert network.to(torch.bfloat16)(torch.ones(4, dtype=torch.bfloat16)).dtype == torch.bfloat16


@pytest.mark.parametrize(("layer", "shape"), [(nn.Linear(4, 3), (2, 4)), (nn.Conv1d(4, 3, 2), (4, 5))])
def test_whole_numbers_are_refused_as_torch_does(layer: nn.Module, shape: tuple[int, ...]) -> None:
    ticket = hide(copy.deepcopy(layer), Policy(init="sign"), seed=0).to_ticket()
    with pytest.raises(ValueError, match=r"runs from bits needs floats; got torch\.int64\. Use x\.float\(\)\."):
        attach(layer, ticket, run="bits")(torch.ones(shape, dtype=torch.int64))


def test_a_meta_module_without_its_buffers_is_refused() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False)).to("meta")
    model.register_buffer("angles", torch.ones(3, device="meta"), persistent=False)
    with pytest.raises(ValueError, match="no memory for its angles"):
        load_bits(model, single("0.weight", (4, 4)))


@pytest.mark.parametrize("init", ["own", "uniform"])
def test_other_weights_are_refused_with_what_to_do(init: str) -> None:
    ticket = hide(nano(), Policy(init=init), seed=0).to_ticket()  # type: ignore[arg-type]
    kind = {"own": "normal"}.get(init, init)
    for run in (lambda: ticket.build(run="bits"), lambda: attach(nano(), ticket, run="bits")):
        with pytest.raises(StrongTicketError, match=rf"tokens.weight has {kind} weights. Search with --init sign"):
            run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"run": "bit"}, "run must be one of dense, bits"),
        ({"run": "bits", "resident": "both"}, "resident must be one of planes, mask"),
        ({"run": "bits", "dtype": torch.float64}, "float32; got a gpt2, literal, torch.float64"),
        ({"run": "bits", "form": "merged"}, "literal form"),
    ],
)
def test_bad_options_are_named(options: dict[str, Any], message: str) -> None:
    ticket = hide(nano(), Policy(init="sign"), seed=0).to_ticket()
    with pytest.raises(ValueError, match=message):
        ticket.build(**options)


def test_signed_embedding_and_levels_say_what_they_are() -> None:
    network = signed_ticket(nano).build(run="bits")
    assert isinstance(network.tokens, SignedEmbedding)
    assert "in_features=64, out_features=256, bias=False" in repr(network.head)
    assert np.prod(network.tokens.weight.shape) == 256 * 64  # type: ignore[arg-type]
