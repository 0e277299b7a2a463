from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from search_models import CLASSES, IMAGES, TOKENS, hugging_face_gpt2, nano, output_of, vision_transformer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import strongticket as st

IMAGE_BATCH = (IMAGES, CLASSES)
TOKEN_BATCH = {"input_ids": TOKENS, "labels": TOKENS}


def classify(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def test_hugging_faces_gpt2_by_its_own_loss() -> None:
    losses: list[float] = []
    hidden = st.search(
        hugging_face_gpt2(),
        [TOKEN_BATCH] * 20,
        policy=st.Policy(embeddings="trained", output_gain=4.0),
        density=0.25,
        lr=2e-2,
        progress=lambda step, loss: losses.append(loss),
    )
    assert losses[-1] < 0.8 * losses[0]
    assert hidden.densities() == {"attention": 0.25, "mlp": 0.25}
    # Queries, keys and values of two blocks are tensors of their own; the head is tied to the embeddings.
    treatments = [row["treatment"] for row in hidden.describe()]
    assert [treatments.count(kind) for kind in ("masked", "trained", "frozen")] == [12, 2, 18]
    ticket = st.Ticket.from_bytes(hidden.to_ticket().to_bytes())
    assert not ticket.strong
    assert torch.equal(output_of(st.load_ticket(hugging_face_gpt2(), ticket)), output_of(hidden.model))


def test_a_vision_transformer_with_scaled_queries_and_keys() -> None:
    losses: list[float] = []
    hidden = st.search(
        vision_transformer(),
        [IMAGE_BATCH],
        loss=classify,
        steps=20,
        lr=2e-2,
        progress=lambda _, loss: losses.append(loss),
    )
    plain = st.search(vision_transformer(), [IMAGE_BATCH], loss=classify, policy=st.Policy(qk_scale=1))
    assert losses[-1] < 0.8 * losses[0]
    for scaled, unscaled in zip(hidden.describe(), plain.describe(), strict=True):
        if unscaled["treatment"] == "masked":
            ratio = 2.0 if scaled["name"].endswith(("query", "key")) else 1.0  # heads of 16: 16^(1/4)
            assert scaled["scale"] == pytest.approx(ratio * unscaled["scale"])
    ticket = hidden.to_ticket()
    assert ticket.strong
    assert ticket.verify().ok
    assert torch.equal(output_of(st.load_ticket(vision_transformer(), ticket)), output_of(hidden.model))


def test_accumulated_batches_make_the_steps_of_whole_ones() -> None:
    halves = [(IMAGES[:4], CLASSES[:4]), (IMAGES[4:], CLASSES[4:])]
    whole, accumulated = (
        st.search(vision_transformer().double(), batches, loss=classify, steps=3, accumulate=n).to_ticket().identity
        for batches, n in (([as_double(IMAGE_BATCH)], 1), ([as_double(half) for half in halves], 2))
    )
    assert whole == accumulated


def as_double(batch: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    return batch[0].double(), batch[1]


def test_steps_are_as_many_as_the_batches_make() -> None:
    seen: list[int] = []
    loader = DataLoader(TensorDataset(IMAGES, CLASSES), batch_size=1)  # which gives lists, not tuples
    st.search(vision_transformer(), loader, loss=classify, accumulate=3, progress=lambda step, _: seen.append(step))
    assert seen == [1, 2]


def test_batches_are_gone_through_again() -> None:
    seen: list[int] = []

    class Epochs:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            seen.append(0)
            return iter([IMAGE_BATCH] * 2)

    st.search(vision_transformer(), Epochs(), loss=classify, steps=5)
    assert len(seen) == 3


def test_the_same_call_gives_the_same_ticket_and_another_seed_another() -> None:
    identities = [
        st.search(nano(), [(TOKENS[:, :-1], TOKENS[:, 1:])] * 3, seed=seed).to_ticket().identity for seed in (1, 1, 2)
    ]
    assert identities[0] == identities[1] != identities[2]


class Pair(NamedTuple):
    image: Tensor
    label: Tensor
    note: str = "not a tensor"


@pytest.mark.parametrize(
    ("batch", "loss"),
    [
        (Pair(*IMAGE_BATCH), lambda model, pair: F.cross_entropy(model(pair.image), pair.label)),
        ({"x": [IMAGES], "n": 8}, lambda model, batch: model(batch["x"][0])[: batch["n"]].square().mean()),
        (IMAGES, lambda model, images: model(images).square().mean()),
    ],
)
def test_batches_of_any_shape_reach_the_device_whole(batch: Any, loss: Callable[[nn.Module, Any], Tensor]) -> None:
    hidden = st.search(vision_transformer(), [batch], loss=loss, device="cpu")
    assert next(hidden.model.parameters()).device.type == "cpu"


class Elsewhere(Tensor):
    """A tensor on another device, as far as one machine has none: all that can be done with it is to move it."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        assert function is Tensor.to, f"{function} of a tensor that was not moved"
        assert torch.device(arguments[1]) == torch.device("cpu")
        with torch._C.DisableTorchFunctionSubclass():
            return arguments[0].as_subclass(Tensor)


@pytest.mark.parametrize(
    "form",
    [
        lambda image, label: (image, label),
        lambda image, label: [image, [label]],
        lambda image, label: {"image": image, "rest": {"label": label, "note": "not a tensor"}},
        Pair,
    ],
)
def test_every_tensor_of_a_batch_is_moved(form: Callable[[Tensor, Tensor], Any]) -> None:
    def tensors_in(batch: Any) -> list[Tensor]:
        if isinstance(batch, Tensor):
            return [batch]
        parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, tuple | list) else ()
        return [tensor for part in parts for tensor in tensors_in(part)]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        image, label = tensors_in(batch)
        return classify(model, (image, label))

    batch = form(*(tensor.as_subclass(Elsewhere) for tensor in IMAGE_BATCH))
    st.search(vision_transformer(), [batch], loss=loss, device="cpu")


def test_compiled_steps_are_the_eager_ones() -> None:
    losses: dict[str | None, list[float]] = {None: [], "aot_eager": []}
    for compiler, kept in losses.items():
        st.search(
            vision_transformer(),
            [IMAGE_BATCH] * 3,
            loss=classify,
            compiler=compiler,
            progress=lambda _, loss, kept=kept: kept.append(loss),  # type: ignore[misc]
        )
    assert losses["aot_eager"] == pytest.approx(losses[None], rel=1e-5)


def test_nan_is_named_with_its_step() -> None:
    batches = [IMAGE_BATCH, IMAGE_BATCH, (IMAGES * torch.nan, CLASSES)]
    with pytest.raises(st.StrongTicketError, match=r"training loss is nan at step 3; nothing was kept\. Use a smaller"):
        st.search(vision_transformer(), batches, loss=classify)


@pytest.mark.parametrize(
    ("batches", "settings", "message"),
    [
        ([], {}, "needs batches; got none"),
        (iter([]), {"steps": 3}, "needs batches; got none"),
        (iter([IMAGE_BATCH]), {}, "number of steps is unknown: this list_iterator has no length. Pass steps"),
        ([IMAGE_BATCH], {"steps": 0}, "1 step or more"),
        ([IMAGE_BATCH], {"accumulate": 0}, "accumulate must be at least 1"),
        ([IMAGE_BATCH], {"weight_decay": -1}, "weight_decay must be 0 or more"),
        ([IMAGE_BATCH], {"lr": "x"}, r"^lr must be a number; got 'x'\.$"),
        (IMAGES, {}, r"^batches must be an iterable of batches, such as a DataLoader or a list; got: Tensor\.$"),
        (3, {"steps": 1}, "batches must be an iterable of batches.* got: int"),
        ([IMAGE_BATCH], {"density": 30}, "density must be in"),
        ([IMAGE_BATCH], {"seed": -1}, "seed"),
        ([IMAGE_BATCH], {"clip": 0}, "clip must be a positive norm"),
        ([IMAGE_BATCH], {"precision": "half"}, "precision must be"),
        ([IMAGE_BATCH], {"groups": {"no.such.*": "mlp"}}, "no parameter matches"),
    ],
)
def test_what_cannot_work_is_refused_and_the_module_left_alone(
    batches: Any, settings: dict[str, Any], message: str
) -> None:
    model = vision_transformer()
    with pytest.raises(ValueError, match=message):
        st.search(model, batches, loss=classify, **settings)
    assert model.state_dict().keys() == vision_transformer().state_dict().keys()
    assert torch.equal(output_of(model), output_of(vision_transformer()))


def test_a_function_that_makes_a_module_is_not_one() -> None:
    with pytest.raises(ValueError, match=r"^a search needs a torch\.nn\.Module; got the function vision_t"):
        st.search(vision_transformer, [IMAGE_BATCH], loss=classify)  # type: ignore[arg-type]


def test_an_iterator_that_ends_early_is_named() -> None:
    with pytest.raises(ValueError, match="batches ended after step 2, and an iterator"):
        st.search(vision_transformer(), iter([IMAGE_BATCH] * 2), loss=classify, steps=5)


def test_a_model_without_a_loss_needs_one() -> None:
    with pytest.raises(
        ValueError, match=r"scalar loss; got a tensor \(8, 4\). Pass a list of batches \(x, y\), or loss="
    ):
        st.search(vision_transformer(), [(IMAGES,)])
    with pytest.raises(ValueError, match="scalar loss; got a NoneType"):
        st.search(hugging_face_gpt2(), [{"input_ids": TOKENS}])


@pytest.mark.parametrize(("steps", "title"), [(None, "search, one pass over the batches: "), (2, "search: ")])
def test_progress_says_that_a_search_is_one_pass(steps: int | None, title: str, capfd: pytest.CaptureFixture) -> None:
    batches = [(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long))] * 2
    st.search(nn.Linear(2, 2), batches, steps=steps, progress=True)
    assert capfd.readouterr().err.startswith(f"{title}step 2 of 2")
