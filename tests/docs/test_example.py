"""The example: a Llama patched with generated operators trains as the unpatched one does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.oracles import DEVICE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

pytest.importorskip("transformers")

from transformers.integrations.sdpa_attention import sdpa_attention_forward  # noqa: E402
from transformers.loss.loss_utils import ForCausalLMLoss  # noqa: E402
from transformers.models.llama import modeling_llama  # noqa: E402

from examples import patch_llama, train_transformer, training_report  # noqa: E402

SETTINGS = dataclasses.replace(train_transformer.TINY, steps=3, warm_up=1)
OWN_ROTATION = modeling_llama.apply_rotary_pos_emb


@pytest.fixture(scope="module")
def calls() -> Iterator[Counter[str]]:
    """How often each generated operator was called; what was patched is put back in the end."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Any:
        operator = getattr(patch_llama, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return operator(*args, **kwargs)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for owner, name in (
            (modeling_llama.LlamaRMSNorm, "forward"),
            (modeling_llama.LlamaMLP, "forward"),
            (modeling_llama, "apply_rotary_pos_emb"),
        ):
            patch.setattr(owner, name, getattr(owner, name))
        for name in ("rms_norm", "swiglu", "rotary", "attention_bshd", "token_loss"):
            patch.setattr(patch_llama, name, counting(name))
        yield counts


@pytest.fixture(scope="module")
def runs(calls: Counter[str]) -> list[dict[str, Any]]:
    """Unpatched first: patches are of the process."""
    return [train_transformer.measure(variant, SETTINGS) for variant in ("unpatched", "tritongen")]


def test_patched_trains_as_unpatched(runs: list[dict[str, Any]], calls: Counter[str]) -> None:
    unpatched, patched = runs
    assert patched["losses"] == pytest.approx(unpatched["losses"], rel=1e-5)
    assert unpatched["losses"][-1] < unpatched["losses"][0] - 0.1
    assert patched["start"] == unpatched["start"]
    steps, layers = SETTINGS.steps, SETTINGS.layers
    assert calls == {
        "rms_norm": steps * (2 * layers + 1),
        "swiglu": steps * layers,
        "rotary": steps * 2 * layers,
        "attention_bshd": steps * layers,
        "token_loss": steps,
    }


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("hidden_act", "gelu", "hidden_act must be silu, not gelu"),
        ("_attn_implementation", "eager", "attention must be sdpa, not eager"),
    ],
)
def test_another_model_is_refused(name: str, value: str, message: str) -> None:
    model = train_transformer.make_model(SETTINGS, "cpu")
    setattr(model.config, name, value)
    with pytest.raises(ValueError, match=message):
        patch_llama.patch_llama(model)


@pytest.fixture
def models(calls: Counter[str]) -> tuple[Any, Any]:
    """One whose attention is torch's, and one with the same weights whose attention is patched."""
    pair = tuple(train_transformer.make_model(SETTINGS, DEVICE).eval() for _ in range(2))
    patch_llama.patch_llama(pair[1])
    return pair


def logits_of(pair: tuple[Any, Any], **given: Any) -> list[torch.Tensor]:
    torch.manual_seed(0)
    tokens = torch.randint(SETTINGS.vocabulary, (2, 9), device=DEVICE)
    with torch.no_grad():
        return [model(input_ids=tokens, **given).logits for model in pair]


@pytest.mark.parametrize("use_cache", [False, True], ids=["whole", "prefill"])
def test_attention_of_whole_sequences(use_cache: bool, models: tuple[Any, Any], calls: Counter[str]) -> None:
    before = calls["attention_bshd"]
    expected, got = logits_of(models, use_cache=use_cache)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert calls["attention_bshd"] == before + SETTINGS.layers


@pytest.mark.parametrize("given", ["padded", "packed", "dropout"])
def test_what_attention_does_not_compute_runs_as_before(
    given: str, models: tuple[Any, Any], calls: Counter[str]
) -> None:
    """A mask of padding, sequences behind each other in one row, and dropout."""
    before = calls["attention_bshd"]
    attention_mask = torch.ones(2, 9, dtype=torch.int64, device=DEVICE)
    attention_mask[1, :4] = 0
    packed = torch.tensor([[*range(4), *range(5)]] * 2, device=DEVICE)
    if given == "dropout":
        layer = models[1].model.layers[0].self_attn
        q, k = (torch.randn(2, heads, 9, 8, device=DEVICE) for heads in (4, 2))
        attended, _ = patch_llama.attended(layer, q, k, k, None, dropout=1.0, scaling=1.0)
        assert not attended.any()
    else:
        options = {"attention_mask": attention_mask} if given == "padded" else {"position_ids": packed}
        expected, got = (logits[1, 4:] for logits in logits_of(models, use_cache=False, **options))
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert calls["attention_bshd"] == before


def test_generation(models: tuple[Any, Any], calls: Counter[str]) -> None:
    """Only the prompt goes through the generated kernel; what follows meets the cache."""
    prompt = torch.arange(1, 8, device=DEVICE)[None]
    before = calls["attention_bshd"]
    expected, got = (model.generate(prompt, max_new_tokens=4, do_sample=False, pad_token_id=0) for model in models)
    assert torch.equal(got, expected)
    assert calls["attention_bshd"] == before + SETTINGS.layers


def test_attention_and_its_gradient_are_torchs() -> None:
    """In the layout of transformers, views of what the projections leave, with a scale of its own."""
    torch.manual_seed(0)
    module = torch.nn.Module()
    module.num_key_value_groups = 2
    q, k, v = (torch.randn(2, 21, heads, 16, device=DEVICE).transpose(1, 2).requires_grad_() for heads in (4, 2, 2))
    results = []
    for attend in (sdpa_attention_forward, patch_llama.attended):
        attended, _ = attend(module, q, k, v, None, scaling=0.3)
        assert attended.shape == (2, 21, 4, 16)
        assert attended.is_contiguous()
        results.append((attended, *torch.autograd.grad(attended.square().cumsum(1).sum(), (q, k, v))))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("heads_at", [1, 2])
@pytest.mark.parametrize("sets", [1, 2], ids=["same_positions", "own_positions"])
def test_rotation(heads_at: int, sets: int) -> None:
    """As transformers turns heads, forward and backward, wherever heads lie and whatever their positions."""
    torch.manual_seed(0)
    q, k = (torch.randn(2, 5, heads, 8, device=DEVICE).movedim(2, heads_at).requires_grad_() for heads in (4, 2))
    angles = torch.rand(sets, 5, 4, device=DEVICE).repeat(1, 1, 2)
    cos, sin = angles.cos(), angles.sin()
    results = []
    for rotate in (OWN_ROTATION, patch_llama.rotated):
        turned = rotate(q, k, cos, sin, unsqueeze_dim=heads_at)
        gradients = torch.autograd.grad([one.square().cumsum(-1).sum() for one in turned], (q, k))
        results.append((*turned, *gradients))
    for expected, got in zip(*results, strict=True):
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("given", [{}, {"num_items_in_batch": 7}, {"ignore_index": 3}, {"shift_labels": True}])
def test_loss(given: dict[str, Any]) -> None:
    """As transformers has it, for tokens that do not count and for shares of a greater batch."""
    torch.manual_seed(0)
    labels = torch.randint(12, (2, 6), device=DEVICE)
    labels[0, 3] = given.get("ignore_index", -100)
    if "shift_labels" in given:
        given = {"shift_labels": labels.roll(-1, -1)}
    logits = torch.randn(2, 6, 12, device=DEVICE, dtype=torch.float32, requires_grad=True)
    # A model's logits are no leaf, and nothing is left of them.
    losses = [loss(logits + 0, labels, 12, **given) for loss in (ForCausalLMLoss, patch_llama.next_token_loss)]
    torch.testing.assert_close(losses[1], losses[0])
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in losses]
    torch.testing.assert_close(gradients[1], gradients[0])


def test_gradients_are_clipped(calls: Counter[str]) -> None:
    """With a norm of nearly nothing AdamW's epsilon is more than any gradient, so that nothing is learnt."""
    clipped = train_transformer.measure("unpatched", dataclasses.replace(SETTINGS, largest_norm=1e-12, steps=2))
    free = train_transformer.measure("unpatched", dataclasses.replace(SETTINGS, largest_norm=1e12, steps=2))
    assert clipped["losses"][0] == free["losses"][0]
    assert abs(clipped["losses"][1] - free["losses"][1]) > 1e-3


def test_text_has_four_followers_of_two_tokens() -> None:
    settings = dataclasses.replace(train_transformer.TINY, steps=200)
    tokens = train_transformer.make_tokens(settings)
    assert tokens.shape == (200, settings.batch, settings.length)
    assert torch.equal(tokens, train_transformer.make_tokens(settings))
    assert len(tokens.unique()) == settings.used_tokens
    assert tokens.max() < settings.vocabulary
    after: dict[tuple[int, int], Counter[int]] = {}
    for row in tokens.view(-1, settings.length).tolist():
        for pair, token in zip(itertools.pairwise(row), row[2:], strict=False):
            after.setdefault(pair, Counter())[token] += 1
    shares = torch.zeros(4)
    for followers in after.values():
        assert len(followers) <= 4
        for place, (_, count) in enumerate(followers.most_common()):
            shares[place] += count
    assert (shares / shares.sum()).tolist() == pytest.approx(train_transformer.ODDS, abs=0.05)


def test_report(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for one in runs:
        (tmp_path / f"{one['variant']}-1.json").write_text(json.dumps(one))
    slower = {**runs[0], "milliseconds": {name: [3.0] * SETTINGS.steps for name in train_transformer.PHASES}}
    (tmp_path / "unpatched-2.json").write_text(json.dumps(slower))
    training_report.report(tmp_path, tmp_path / "docs", float32=tmp_path)
    page = (tmp_path / "docs" / "training.md").read_text()
    text = " ".join(page.split())
    assert "unpatched in round 2 gave the same losses" in text
    every = sorted(abs(one - other) for one, other in zip(runs[1]["losses"], runs[0]["losses"], strict=True))
    most = every[-1]
    assert f"In float32 (3 steps, otherwise alike) the loss of tritongen differs from unpatched's by {most:.1e}" in text
    assert "gradients clipped to a norm of 1." in text
    assert "run --out runs --steps 3 --variants unpatched tritongen\n" in page
    (row,) = (line for line in page.splitlines() if line.startswith("| unpatched |"))
    assert " 9.0] |" in row
    (row,) = (line for line in page.splitlines() if line.startswith("| tritongen |"))
    assert f"| {every[1]:.1e} | {most:.1e} |" in row  # of three steps
    assert "<svg" in (tmp_path / "docs" / "training.svg").read_text()


def test_report_of_runs_that_differ(runs: list[dict[str, Any]], tmp_path: Path) -> None:
    unpatched, patched = runs
    (tmp_path / "unpatched-1.json").write_text(json.dumps(unpatched))
    with pytest.raises(SystemExit, match="no run of tritongen"):
        training_report.load(tmp_path)
    (tmp_path / "tritongen-1.json").write_text(json.dumps(patched))
    variants = training_report.load(tmp_path)
    settings = dataclasses.replace(SETTINGS, dtype="bfloat16", steps=9)
    assert "In float32" in training_report.exact(variants, dataclasses.asdict(settings))
    with pytest.raises(SystemExit, match="in more than dtype and steps"):
        training_report.exact(variants, dataclasses.asdict(dataclasses.replace(settings, layers=9)))
    (tmp_path / "tritongen-1.json").write_text(json.dumps({**patched, "start": "another"}))
    with pytest.raises(SystemExit, match="differ in their start"):
        training_report.load(tmp_path)
