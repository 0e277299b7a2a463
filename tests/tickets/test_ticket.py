import copy
import hashlib
import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load as load_safetensors
from tests.small_tickets import edited, small_ticket, take_apart

from strongticket import BlockMask, Certificate, DenseTensor, FullMask, PackedMask, RandomTensor, Ticket
from strongticket.tickets.content import digest_of_tensors
from strongticket.tickets.format import MAX_HEADER_BYTES

GOLDEN = Path(__file__).parents[1] / "golden"

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
json_objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)


def _nested(levels: int) -> list:
    return [_nested(levels - 1)] if levels else []


@st.composite
def masks(draw: st.DrawFn) -> PackedMask | FullMask | BlockMask:
    rows, units = draw(st.integers(0, 9)), draw(st.integers(0, 9))
    kind = draw(st.sampled_from(["bits", "ones", "blocks"]))
    if kind == "ones":
        return FullMask((rows, units))
    if kind == "blocks":
        return BlockMask((rows, units), 1, tuple([0] * rows))
    return PackedMask.random((rows, units), draw(st.sampled_from([0.05, 0.5, 1.0])), seed=draw(st.integers(0, 99)))


@st.composite
def tickets(draw: st.DrawFn) -> Ticket:
    names = draw(
        st.lists(st.from_regex(r"[a-z0-9_]{1,6}(\.[a-z0-9_-]{1,6})?", fullmatch=True), max_size=5, unique=True)
    )
    cut = draw(st.integers(0, len(names)))
    dtypes = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
    return Ticket(
        seed=draw(st.integers(0, 2**64 - 1)),
        tensors=[
            RandomTensor(
                name=name,
                mask=draw(masks()),
                distribution=draw(st.sampled_from(["uniform", "normal", "sign"])),
                scale=draw(st.floats(1e-6, 1e6)),
            )
            for name in names[:cut]
        ],
        dense=[
            DenseTensor(
                name=name, value=torch.randn(draw(st.integers(0, 4)), 2).to(draw(dtypes)), trained=draw(st.booleans())
            )
            for name in names[cut:]
        ],
        architecture=draw(json_objects),
        certificate=draw(
            st.none()
            | st.builds(Certificate, error=st.floats(0, 9), input_norm=st.just(1.0), target_sha256=st.just("0" * 64))
        ),
        metadata=draw(json_objects),
    )


@given(ticket=tickets())
def test_bytes_round_trip(ticket: Ticket) -> None:
    data = ticket.to_bytes()
    again = Ticket.from_bytes(data)
    assert again == ticket
    assert again.to_bytes() == data
    assert again.verify().ok
    for name, tensor in ticket.dense.items():
        torch.testing.assert_close(again.dense[name].value, tensor.value, rtol=0, atol=0)


def test_files_round_trip(tmp_path: Path) -> None:
    ticket = small_ticket()
    ticket.save(tmp_path / "a.ticket")
    again = Ticket.load(tmp_path / "a.ticket")
    assert again == ticket
    assert again.certificate == ticket.certificate
    assert os.listdir(tmp_path) == ["a.ticket"]


def test_any_safetensors_reader_opens_a_ticket(tmp_path: Path) -> None:
    small_ticket().save(path := tmp_path / "a.ticket")
    with safe_open(path, "pt") as file:
        assert json.loads(file.metadata()["strongticket"])["version"] == 1
        torch.testing.assert_close(file.get_tensor("dense.embedding"), small_ticket().dense["embedding"].value)


def test_the_last_32_bytes_are_the_sha256_of_the_others() -> None:
    data = small_ticket().to_bytes()
    assert hashlib.sha256(data[:-32]).digest() == data[-32:]
    assert bytes(load_safetensors(data)["sha256"].tolist()) == data[-32:]


def test_materialize_masks_the_regenerated_weights() -> None:
    ticket = small_ticket()
    weights = ticket.materialize()
    assert list(weights) == list(ticket.tensors)
    assert len(weights) == 6
    for name, tensor in ticket.tensors.items():
        mask = tensor.mask.to_bool()
        assert torch.equal(weights[name] != 0, mask)
        assert weights[name].dtype == torch.float32
    assert weights["mlp.down"].abs().max() == 0.5
    with pytest.raises(KeyError, match="no-such"):
        weights["no-such"]


def test_the_largest_that_is_held() -> None:
    deep = PackedMask.from_bool(torch.ones([1] * 16, dtype=torch.bool))
    ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=deep)], metadata={"a": 2**64 - 1, "b": -(2**64) + 1})
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket


def test_masks_of_whole_bytes_are_coded_by_byte() -> None:
    """More of them than are coded at a time, and one byte more."""
    bytes_ = np.random.default_rng(0).integers(0, 2, (1 << 20) + 1, dtype=np.uint8) * np.uint8(255)
    ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=PackedMask((8 * bytes_.size,), bytes_))])
    data = ticket.to_bytes()
    assert len(data) < 0.2 * bytes_.size
    assert Ticket.from_bytes(data) == ticket


def test_counts_and_strength() -> None:
    ticket = small_ticket()
    assert ticket.numel == 21 + 21 + 360 + 32 + 5
    assert ticket.kept() == sum(int(tensor.mask.to_bool().sum()) for tensor in ticket.tensors.values())
    assert not ticket.strong
    assert Ticket(seed=0, tensors=[], dense=[DenseTensor(name="b", value=torch.zeros(1))]).strong


def test_identity_is_of_the_content_alone() -> None:
    ticket = small_ticket()

    def variant(**change: object) -> Ticket:
        parts = {
            "seed": ticket.seed,
            "tensors": list(ticket.tensors.values()),
            "dense": list(ticket.dense.values()),
            "architecture": ticket.architecture,
        }
        return Ticket(**(parts | change))  # type: ignore[arg-type]

    assert variant().identity == ticket.identity, "certificate and metadata are outside"
    assert variant(metadata={"a": 1}) != variant(), "but equality sees them"
    other_mask = RandomTensor(name="head.0.query", mask=BlockMask((3, 7), 1, (2, 1, 2)), scale=8**0.25)
    tensors = list(ticket.tensors.values())
    changed = [
        variant(seed=1),
        variant(architecture={"family": "other"}),
        variant(dense=[DenseTensor(name="bias", value=torch.zeros(3))]),
        variant(tensors=[other_mask, *tensors[1:]]),
        variant(tensors=tensors[::-1]),
    ]
    assert len({ticket.identity, *(other.identity for other in changed)}) == 6


def test_identity_ignores_how_masks_are_coded(monkeypatch: pytest.MonkeyPatch) -> None:
    ticket = small_ticket()
    coded = ticket.to_bytes()
    monkeypatch.setattr("strongticket.tickets.format.encode_mask", lambda mask: ("raw", [mask.bits.data]))
    raw = ticket.to_bytes()
    assert raw != coded
    assert Ticket.from_bytes(raw).identity == Ticket.from_bytes(coded).identity


def test_golden_tickets_open_for_ever() -> None:
    """Pins what is decoded, not the bytes: compressors differ between builds."""
    expected = json.loads((GOLDEN / "expected.json").read_text())
    files = sorted(path.name for path in GOLDEN.glob("*.ticket"))
    assert files == sorted(expected)
    for name in files:
        ticket = Ticket.load(GOLDEN / name)
        masked = {tensor: weight for tensor, weight in ticket.materialize().items()}
        assert ticket.identity == expected[name]["identity"]
        assert digest_of_tensors(masked) == expected[name]["masked_weights"]
        assert ticket.verify().ok


@pytest.mark.gpu
def test_golden_tickets_have_the_same_weights_on_cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    expected = json.loads((GOLDEN / "expected.json").read_text())
    for name, values in expected.items():
        weights = Ticket.load(GOLDEN / name).materialize(device="cuda")
        assert digest_of_tensors(dict(weights)) == values["masked_weights"]


@pytest.mark.parametrize("part", ["masks", "weights"])
def test_verify_names_what_does_not_match(part: str) -> None:
    data = edited(small_ticket().to_bytes(), lambda description: description["sha256"].update({part: "0" * 64}))
    verification = Ticket.from_bytes(data).verify()
    assert not verification.ok
    assert len(verification.failures) == 1
    assert re.search(f"{part}' SHA-256 is [0-9a-f]{{64}}, the file says 0000", verification.failures[0])


def test_saving_a_loaded_ticket_keeps_its_digests() -> None:
    """Writing a file again must not bless weights that the stored digest would have exposed."""
    data = edited(small_ticket().to_bytes(), lambda description: description["sha256"].update(weights="0" * 64))
    assert not Ticket.from_bytes(Ticket.from_bytes(data).to_bytes()).verify().ok


@pytest.mark.parametrize(("density", "bits_a_weight"), [(0.5, 1.01), (0.3, 0.90), (0.05, 0.32)])
def test_size(density: float, bits_a_weight: float) -> None:
    weights = 4_000_000
    mask = PackedMask.random((weights,), density, seed=0)
    size = len(Ticket(seed=0, tensors=[RandomTensor(name="w", mask=mask)]).to_bytes())
    assert 8 * (size - 4096) / weights <= bits_a_weight


def test_no_thread_of_a_writer_waits_for_the_compiler() -> None:
    """As if Ctrl-C had left the lock of numba's compiler locked: loading a kernel from the cache takes it as well."""
    program = (
        "from numba.core.compiler_lock import global_compiler_lock\n"
        "from strongticket import *\n"
        "mask = PackedMask.random((5000,), 0.1, seed=0)\n"
        "ticket = Ticket(seed=0, tensors=[RandomTensor(name='w', mask=mask)])\n"
        "with global_compiler_lock:\n"
        "    print(Ticket.from_bytes(ticket.to_bytes()).tensors['w'].mask == mask)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "True\n"


def test_a_hundred_million_weights_save_and_load_in_seconds_and_little_memory(tmp_path: Path) -> None:
    """On one core, in at most twice the packed 12.5 MB of resident memory: the mask itself and its code."""
    script = f"""
import re, time
import numpy as np, torch
from strongticket import PackedMask, RandomTensor, Ticket
torch.set_num_threads(1)
n = 100_000_000
small = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=PackedMask.random((1_000_000,), 0.3, seed=0))])
small.save(r"{tmp_path}/warm.ticket"); Ticket.load(r"{tmp_path}/warm.ticket")
# Each bit of each byte is set with probability 0.25, made in pieces so that making it leaves no high-water mark.
bits = np.empty(n // 8, np.uint8)
rng = np.random.default_rng(0)
for i in range(0, bits.size, 125_000):
    bits[i:i + 125_000] = np.packbits(rng.random(1_000_000, dtype=np.float32) < 0.25)
def peak():
    # Not ru_maxrss, which a process inherits from the one that starts it.
    return int(re.search("VmHWM: *\\t* *([0-9]+)", open("/proc/self/status").read())[1]) * 1024
base = peak() - bits.nbytes
ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=PackedMask((n,), bits, copy=False))])
t = time.process_time(); ticket.save(r"{tmp_path}/a.ticket"); save = time.process_time() - t
after_save = peak() - base
del ticket, bits
t = time.process_time(); Ticket.load(r"{tmp_path}/a.ticket"); load = time.process_time() - t
print(save, load, after_save / (n / 8), (peak() - base) / (n / 8))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    save, load, save_memory, load_memory = map(float, run.stdout.split())
    assert save < 5
    assert load < 5
    assert save_memory <= 2
    assert load_memory <= 2


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomTensor(name="../x", mask=FullMask((1,))), r"a tensor's name must be letters.*got '\.\./x'"),
        (lambda: RandomTensor(name="", mask=FullMask((1,))), "got ''"),
        (lambda: RandomTensor(name="w", mask=FullMask((2**21, 2**20))), r"at most 16 dimensions and 2\^40 elements"),
        (lambda: RandomTensor(name="w", mask=FullMask((1,)), distribution="cauchy"), "w: distribution must be one of"),
        (lambda: RandomTensor(name="w", mask=FullMask((1,)), scale=-1), "scale must be between"),
        (
            lambda: DenseTensor(name="b", value=torch.zeros(2, dtype=torch.int64)),
            "b: a dense tensor must be float16.*got torch.int64",
        ),
        (lambda: DenseTensor(name="b", value="zeros"), r"b: a dense tensor must be a tensor, .*; got 'zeros'"),
        (
            lambda: DenseTensor(name="b", value=torch.zeros(2, device="meta")),
            "b: .* must store all its entries; got one on meta",
        ),
        (
            lambda: DenseTensor(name="b", value=torch.eye(2).to_sparse()),
            "must store all its entries; got torch.sparse_coo",
        ),
        (lambda: DenseTensor(name="b", value=torch.zeros(2), trained=1), "b: trained must be True or False; got 1"),
        (lambda: RandomTensor(name="w", mask=torch.ones(2) > 0), "w: mask must be a PackedMask.*got Tensor"),
        (lambda: RandomTensor(name="w", mask=FullMask((0, 2**40, 2))), "zeros counted as ones"),
        (lambda: Ticket(seed=0, tensors=[], certificate={}), "certificate must be a Certificate; got dict"),
        (lambda: Ticket(seed=0, tensors=[], metadata={"a": "\ud800"}), "half a surrogate pair"),
        (lambda: Ticket(seed=0, tensors=[], metadata={"a": 2**64}), "metadata.a .*; got int 18446744073709551616"),
        (lambda: Ticket(seed=0, tensors=[], metadata={"a": -(2**64)}), "metadata.a .*; got int -18446744073709551616"),
        (lambda: Ticket(seed=0, tensors=[], metadata=["a"]), "metadata must be a mapping; got list"),
        (lambda: DenseTensor(name="b", value=torch.zeros([1] * 17)), "b: a shape may have at most 16 dimensions"),
        (lambda: Ticket(seed=-1, tensors=[]), "seed must be a whole number"),
        (lambda: Ticket(seed=True, tensors=[]), "seed must be a whole number"),
        (lambda: Ticket(seed=1.0, tensors=[]), "seed must be a whole number"),
        (
            lambda: Ticket(seed=0, tensors=[RandomTensor(name="w", mask=FullMask((1,)))] * 2),
            "tensor names must be unique; got 'w' twice",
        ),
        (
            lambda: Ticket(seed=0, tensors=[RandomTensor(name=f"w{i}", mask=FullMask((2**39,))) for i in range(3)]),
            r"at most 2\^40 elements",
        ),
        (
            lambda: Ticket(seed=0, tensors=[], metadata={"a": float("nan")}),
            r"metadata\.a must be plain JSON.*got float nan",
        ),
        (lambda: Ticket(seed=0, tensors=[], architecture={"a": [{1: 2}]}), r"architecture\.a\[0\] must be plain JSON"),
        (
            lambda: Certificate(error=-1.0, input_norm=1.0, target_sha256="0" * 64),
            "error must be finite and at least 0",
        ),
        (lambda: Certificate(error=1.0, input_norm=1.0, target_sha256="xyz"), "64 lowercase hex digits; got 'xyz'"),
        (lambda: PackedMask.random((3,), 70, seed=0), r"density must be in \(0, 1\]; got 70. It is the fraction kept"),
        (lambda: PackedMask.random((3,), 0, seed=0), r"density must be in \(0, 1\]; got 0"),
    ],
)
def test_wrong_parts_are_refused_in_one_line(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make()  # type: ignore[operator]
    assert "\n" not in str(caught.value)


def test_copies_and_pickles_are_the_same_ticket() -> None:
    ticket = small_ticket()
    loaded = Ticket.from_bytes(ticket.to_bytes())
    for one in (ticket, loaded):
        copied = copy.deepcopy(one)
        assert copied == one
        assert copied.stored_digests == one.stored_digests
        again = pickle.loads(pickle.dumps(one))
        assert again == one
        assert again.to_bytes() == one.to_bytes()
    assert copy.copy(loaded) == loaded


def test_a_deep_copy_can_be_changed_by_itself() -> None:
    ticket, same = small_ticket(), small_ticket()
    copied = copy.deepcopy(ticket)
    copied.metadata["note"] = "mine"
    copied.architecture["n_heads"] = 2
    copied.certificate.details["layers"] = []
    copied.dense["bias"].value.fill_(7.0)
    assert ticket == same


def test_a_deep_copy_has_the_ticket_once_and_its_masks_not_again() -> None:
    ticket = small_ticket()
    first, second = copy.deepcopy([ticket, ticket])
    assert first is second
    assert all(tensor.mask is ticket.tensors[name].mask for name, tensor in first.tensors.items())


def test_a_ticket_is_found_in_a_set_after_its_architecture_was_changed() -> None:
    ticket = small_ticket()
    tickets = {ticket}
    assert hash(small_ticket()) == hash(ticket)
    ticket.architecture["n_heads"] = 2
    assert ticket in tickets


def test_numbers_may_come_from_numpy() -> None:
    tensor = RandomTensor(name="w", mask=FullMask((1,)), scale=np.float32(0.5))  # type: ignore[arg-type]
    certificate = Certificate(error=np.float32(0.5), input_norm=np.int64(1), target_sha256="0" * 64)  # type: ignore[arg-type]
    ticket = Ticket(seed=np.int64(3), tensors=[tensor], certificate=certificate)  # type: ignore[arg-type]
    plain = Certificate(error=0.5, input_norm=1.0, target_sha256="0" * 64)
    assert ticket == Ticket(seed=3, tensors=[RandomTensor(name="w", mask=FullMask((1,)), scale=0.5)], certificate=plain)
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket


def test_a_dense_tensor_may_be_a_view_with_its_sign_yet_to_be_turned() -> None:
    view = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert view.is_neg()
    assert DenseTensor(name="b", value=view).to_bytes() == torch.tensor([-2.0, 4.0]).numpy().tobytes()


def test_the_parts_of_a_ticket_cannot_be_set() -> None:
    ticket = small_ticket()
    with pytest.raises(AttributeError, match="a ticket's seed cannot be set; make a new ticket"):
        ticket.seed = 1
    with pytest.raises(TypeError, match="does not support item assignment"):
        ticket.tensors["x"] = ticket.tensors["norm"]  # type: ignore[index]
    before = ticket.identity
    ticket.dense["bias"].value.fill_(7.0)
    assert ticket.identity != before, "what can still be reached is hashed anew"
    before = ticket.identity
    ticket.architecture["d_in"] = 99
    assert ticket.identity != before, "and so is the architecture"


def test_metadata_may_nest_64_levels() -> None:
    ticket = Ticket(seed=0, tensors=[], metadata={"a": _nested(62)})
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket


def test_a_header_may_be_as_long_as_is_read() -> None:
    def header_of(note: int) -> int:
        return int.from_bytes(Ticket(seed=0, tensors=[], metadata={"note": "x" * note}).to_bytes()[:8], "little")

    longest = MAX_HEADER_BYTES - header_of(0)
    ticket = Ticket(seed=0, tensors=[], metadata={"note": "x" * longest})
    assert header_of(longest) == MAX_HEADER_BYTES
    assert Ticket.from_bytes(ticket.to_bytes()) == ticket
    with pytest.raises(ValueError, match="a ticket's description takes at most"):
        header_of(longest + 8)


def test_metadata_too_large_for_the_header_is_refused(tmp_path: Path) -> None:
    ticket = Ticket(seed=0, tensors=[], metadata={"text": "x" * (9 << 20)})
    with pytest.raises(ValueError, match=r"description takes at most 8388608 bytes.*Put less into metadata"):
        ticket.save(tmp_path / "a.ticket")
    assert os.listdir(tmp_path) == []


def _run_in_child(script: str) -> subprocess.CompletedProcess[str]:
    prelude = "from strongticket import *\nfrom tests.small_tickets import small_ticket\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + script], capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    """The kernel refuses to let files grow past 64 KiB in the child, as a full disk would."""
    small_ticket().save(path := tmp_path / "a.ticket")
    before = path.read_bytes()
    run = _run_in_child(f"""
import resource
ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=PackedMask.random((10**6,), 0.5, seed=0))])
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
ticket.save(r"{path}")
""")
    assert run.returncode == 1
    assert f"File too large: '{path}'" in run.stderr
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.ticket"]


def test_ctrl_c_while_saving_leaves_the_old_file(tmp_path: Path) -> None:
    small_ticket().save(path := tmp_path / "a.ticket")
    before = path.read_bytes()
    run = _run_in_child(f"""
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
ticket = Ticket(seed=0, tensors=[RandomTensor(name="w", mask=PackedMask.random((10**6,), 0.5, seed=0))])
ticket.save(r"{path}", progress=lambda done: os.kill(os.getpid(), signal.SIGINT))
""")
    assert "KeyboardInterrupt" in run.stderr
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.ticket"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "no-such-folder" / "a.ticket"
    with pytest.raises(FileNotFoundError, match=re.escape(f"No such file or directory: '{path}'")):
        small_ticket().save(path)


def test_description_is_what_the_specification_shows() -> None:
    header, description, _ = take_apart(small_ticket().to_bytes())
    assert list(header) == sorted(header)
    assert sorted(description) == ["certificate", "coding", "content", "metadata", "sha256", "version"]
    assert description["content"]["tensors"][0] == {
        "distribution": "uniform",
        "dtype": "F32",
        "mask": {"kind": "blocks", "sizes": [2, 2, 1], "unit_axis": 1},
        "name": "head.0.query",
        "scale": 1.6817928552627563,
        "shape": [3, 7],
    }
