import pytest
import torch
from search_models import TOKENS, loss_of, nano, output_of, search

from strongticket.learn.hide import hide
from strongticket.learn.policy import Policy
from strongticket.models.gpt2 import GPT2, initial_scales
from strongticket.ops.rng import random_weights
from strongticket.ops.supermask import reference

# nano, by hand: d = 64, 2 layers, 128 places, 256 tokens.
D = 64
ATTENTION, MLP, EMBEDDINGS = 2 * 4 * D * D, 2 * 8 * D * D, (128 + 256) * D
NORMS, HEAD = 5 * D, 256 * D
NORM_BIASES, BIASES = 5 * D, 2 * (4 + 4 + 1) * D


def test_hidden_weights_are_the_models_own_except_queries_and_keys() -> None:
    hidden, fresh = hide(nano(), Policy(), seed=3), nano()
    for name in initial_scales(fresh.config):
        original = hidden.model.get_parameter(name.replace("weight", "parametrizations.weight.original"))
        expected = fresh.get_parameter(name)
        if name.endswith(("query.weight", "key.weight")):
            expected = random_weights(3, name, (D, D), "normal", 0.02 * 32**0.25)
        assert torch.equal(original, expected), name
        assert not original.requires_grad


def test_a_seed_fixes_weights_and_scores_whatever_the_model_held() -> None:
    first, second = (hide(GPT2(nano().config, seed=seed), Policy(), seed=3) for seed in (1, 2))
    for (name, a), (_, b) in zip(first.model.state_dict().items(), second.model.state_dict().items(), strict=True):
        assert torch.equal(a, b), name
    other = hide(nano(), Policy(), seed=4)
    for name, supermask in first.supermasks.items():
        assert not torch.equal(supermask.mask, other.supermasks[name].mask), name


@pytest.mark.parametrize(
    ("policy", "changes", "expected"),
    [
        (
            Policy(density=0.25),
            {},
            {"attention": ATTENTION // 4, "mlp": MLP // 4, "embeddings": EMBEDDINGS // 4, "norms": NORMS},
        ),
        (
            Policy(density=0.25, embeddings="trained"),
            {},
            {"attention": ATTENTION // 4, "mlp": MLP // 4, "embeddings": EMBEDDINGS, "norms": NORMS},
        ),
        (
            Policy(density=0.5, attention="frozen", mlp="trained"),
            {"tied": False},
            {
                "attention": ATTENTION,
                "mlp": MLP,
                "embeddings": EMBEDDINGS // 2,
                "norms": NORMS,
                "head": HEAD // 2,
            },
        ),
        # What is frozen at 0 is no nonzero parameter.
        (
            Policy(density=1.0),
            {"bias": True},
            {"attention": ATTENTION, "mlp": MLP, "embeddings": EMBEDDINGS, "norms": NORMS, "biases": 0},
        ),
        (
            Policy(density=1.0, norms="trained", biases="trained"),
            {"bias": True},
            {
                "attention": ATTENTION,
                "mlp": MLP,
                "embeddings": EMBEDDINGS,
                "norms": NORMS + NORM_BIASES,
                "biases": BIASES,
            },
        ),
        # 0.3 of 64^2, 256 * 64 and 128 * 64, what is dropped rounded down: 8 matrices, 4, tokens, positions.
        (
            Policy(density=0.3),
            {},
            {"attention": 8 * 1229, "mlp": 4 * 4916, "embeddings": 4916 + 2458, "norms": NORMS},
        ),
    ],
    ids=str,
)
def test_counts(policy: Policy, changes: dict[str, bool], expected: dict[str, int]) -> None:
    hidden = hide(nano(**changes), policy, seed=0)
    counts = hidden.counts()
    assert counts == expected
    everything = sum(expected.values())
    assert hidden.nonzero() == {"all": everything, "without_embeddings": everything - expected["embeddings"]}
    sizes = {"attention": ATTENTION, "mlp": MLP, "embeddings": EMBEDDINGS, "head": HEAD}
    masked = {group: expected[group] / sizes[group] for group in sizes if group in expected}
    assert hidden.densities() == {g: density for g, density in masked.items() if getattr(policy, g) == "masked"}
    on_purpose = sum(int((p != 0).sum()) for name, p in hidden.model.named_parameters() if "parametriz" not in name)
    in_masks = sum(int(supermask.mask.sum()) for supermask in hidden.supermasks.values())
    if policy.biases == "frozen":
        assert on_purpose + in_masks == everything


def test_global_ranking_keeps_the_density_of_the_whole() -> None:
    hidden = hide(nano(), Policy(density=0.3, scope="global"), seed=0)
    total = ATTENTION + MLP + EMBEDDINGS
    kept = total - reference.dropped_count(total, 0.3)
    assert hidden.nonzero()["all"] == kept + NORMS
    search(hidden, steps=2)
    assert hidden.nonzero()["all"] == kept + NORMS
    assert len({round(density, 3) for density in hidden.densities().values()}) > 1  # groups differ now


@pytest.mark.parametrize("signed", [False, True])
def test_a_search_learns_and_changes_scores_alone(signed: bool) -> None:
    hidden = hide(nano(), Policy(output_gain=4.0, signed=signed), seed=3)
    frozen = {n: p.clone() for n, p in hidden.model.named_parameters() if not p.requires_grad}
    first = {name: supermask.mask.clone() for name, supermask in hidden.supermasks.items()}
    losses = search(hidden)
    assert losses[-1] < losses[0] - 1
    for name, before in frozen.items():
        assert torch.equal(hidden.model.get_parameter(name), before), name
    for name, supermask in hidden.supermasks.items():
        assert torch.equal(supermask.mask, reference.top_mask(supermask.scores, 0.3, signed=signed))
        assert not torch.equal(supermask.mask, first[name]), name
    assert [name for name, _ in hidden.trainable()] == [f"{name}.scores" for name in hidden.supermasks]


def test_trained_tensors_train_and_frozen_ones_do_not() -> None:
    policy = Policy(attention="frozen", embeddings="trained", norms="trained")
    model = nano(bias=True)
    hidden = hide(model, policy, seed=3)
    before = {name: p.clone() for name, p in model.named_parameters()}
    search(hidden, steps=3)
    for name, parameter in model.named_parameters():
        moves = "norm" in name or name in ("tokens.weight", "positions.weight") or name.endswith("scores")
        assert torch.equal(parameter, before[name]) != moves, name
    trained = [name for name, _ in hidden.trainable() if not name.endswith(".scores")]
    assert trained == [name for name, _ in nano(bias=True).named_parameters() if "norm" in name or "ns.weight" in name]


def test_trained_tensors_start_as_they_were() -> None:
    model = nano()
    with torch.no_grad():
        model.tokens.weight.add_(1.0)
    hidden = hide(model, Policy(embeddings="trained"), seed=9)
    assert torch.equal(hidden.model.tokens.weight, nano().tokens.weight + 1.0)


def test_output_gain_is_the_models_or_the_policys() -> None:
    plain = output_of(hide(nano(), Policy(), seed=3).model)
    for gain in (2, 4):
        for model in (nano(), nano(output_gain=float(gain))):
            torch.testing.assert_close(output_of(hide(model, Policy(output_gain=gain), seed=3).model), gain * plain)
    torch.testing.assert_close(output_of(hide(nano(output_gain=4.0), Policy(), seed=3).model), 4 * plain)
    with pytest.raises(ValueError, match="model's output_gain is 2, the policy's 4; leave one of them at 1"):
        hide(nano(output_gain=2.0), Policy(output_gain=4), seed=3)


def test_describe_says_what_was_drawn() -> None:
    rows = {row["name"]: row for row in hide(nano(bias=True), Policy(norms="trained"), seed=3).describe()}
    assert rows["blocks.1.attention.key.weight"] == {
        "name": "blocks.1.attention.key.weight",
        "group": "attention",
        "role": "key",
        "treatment": "masked",
        "shape": [64, 64],
        "distribution": "normal",
        "scale": pytest.approx(0.02 * 32**0.25),
        "init": "own",
    }
    assert rows["blocks.1.mlp.up.bias"]["distribution"] == "constant"
    assert rows["blocks.1.mlp.up.bias"]["scale"] == 0.0
    assert rows["final_norm.weight"]["distribution"] == "as given"
    assert list(rows) == [name for name, _ in nano(bias=True).named_parameters()]


def test_compiled_and_cast() -> None:
    hidden = hide(nano(output_gain=4.0), Policy(), seed=3)
    loss = loss_of(hidden.model)
    loss.backward()
    expected = {name: p.grad for name, p in hidden.trainable()}
    hidden.model.zero_grad()
    compiled = torch.compile(hidden.model, fullgraph=True, backend="aot_eager")(TOKENS[:, :-1], TOKENS[:, 1:])
    compiled.backward()
    torch.testing.assert_close(compiled, loss)
    for name, parameter in hidden.trainable():
        torch.testing.assert_close(parameter.grad, expected[name])
    hidden.model.zero_grad()
    # oneDNN's bfloat16 products crash on virtual machines that list AMX and refuse it.
    with torch.backends.mkldnn.flags(enabled=False):
        with torch.autocast("cpu", torch.bfloat16):
            cast = loss_of(hidden.model)
        cast.backward()
    for name, parameter in hidden.trainable():
        assert parameter.grad.dtype == torch.float32
        assert (parameter.grad - expected[name]).norm() < 0.05 * expected[name].norm(), name


def test_bad_input_changes_nothing() -> None:
    model = nano()
    before = {name: p.clone() for name, p in model.named_parameters()}
    nothing = Policy(attention="frozen", mlp="trained", embeddings="trained")  # and a tied head
    with pytest.raises(ValueError, match=r"masks no tensor.*2 in embeddings \(trained\), 5 in norms \(frozen\)"):
        hide(model, nothing, seed=0)
    with pytest.raises(ValueError, match="seed must be a whole number"):
        hide(model, Policy(), seed=-1)
    with pytest.raises(ValueError, match=r"tokens\.weight is torch\.bfloat16.*use model\.float\(\)"):
        hide(nano().bfloat16(), Policy(), seed=0)
    with pytest.raises(ValueError, match=r"tokens\.weight has no values yet"):
        hide(GPT2(model.config, device="meta"), Policy(), seed=0)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    hidden = hide(model, Policy(), seed=0)
    with pytest.raises(ValueError, match=r"layer tokens has a parametrization.*build a new GPT2"):
        hide(hidden.model, Policy(), seed=0)
