"""The example: a Llama patched with generated operators trains as the unpatched one does."""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.oracles import DEVICE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

pytest.importorskip("transformers")

from examples import patch_llama, train_transformer, training_report  # noqa: E402

SETTINGS = dataclasses.replace(train_transformer.TINY, steps=3, warm_up=1)
OPERATORS = ("rms_norm", "swiglu", "rotary", "attention_bshd", "token_loss")


@pytest.fixture(scope="module")
def calls() -> Iterator[Counter[str]]:
    """How often each generated operator was called."""
    counts: Counter[str] = Counter()

    def counting(name: str) -> Any:
        operator = getattr(patch_llama, name)

        def called(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return operator(*args, **kwargs)

        return called

    with pytest.MonkeyPatch.context() as patch:
        for name in OPERATORS:
            patch.setattr(patch_llama, name, counting(name))
        yield counts


@pytest.fixture(scope="module")
def runs(calls: Counter[str]) -> list[dict[str, Any]]:
    """Unpatched first: patches are of the process, until they are undone."""
    undo: list[Callable[[], None]] = []
    with pytest.MonkeyPatch.context() as patch:
        own = patch_llama.patch
        patch.setattr(patch_llama, "patch", lambda: undo.append(own()))
        found = [train_transformer.measure(variant, SETTINGS) for variant in ("unpatched", "tritongen")]
    undo[0]()
    return found


def test_patched_trains_as_unpatched(runs: list[dict[str, Any]], calls: Counter[str]) -> None:
    unpatched, patched = runs
    assert patched["losses"] == pytest.approx(unpatched["losses"], rel=3e-3)
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


def logits_of(model: Any, **given: Any) -> torch.Tensor:
    torch.manual_seed(0)
    tokens = torch.randint(SETTINGS.vocabulary, (2, 9), device=DEVICE)
    with torch.no_grad():
        return model(input_ids=tokens, **given).logits


@pytest.mark.parametrize("given", ["a cache", "padding", "packed sequences"])
def test_attention_is_that_of_whole_sequences(given: str, calls: Counter[str]) -> None:
    """A mask of padding, and sequences behind each other in one row, are the model's own."""
    padding = torch.ones(2, 9, dtype=torch.int64, device=DEVICE)
    padding[1, :4] = 0
    packed = torch.tensor([[*range(4), *range(5)]] * 2, device=DEVICE)
    options = {"padding": {"attention_mask": padding}, "packed sequences": {"position_ids": packed}}.get(given, {})
    model = train_transformer.make_model(SETTINGS, DEVICE).eval()
    before = calls["attention_bshd"]
    expected = logits_of(model, use_cache=given == "a cache", **options)
    undo = patch_llama.patch()
    try:
        got = logits_of(model, use_cache=given == "a cache", **options)
    finally:
        undo()
    torch.testing.assert_close(got[1, 4:], expected[1, 4:], rtol=3e-2, atol=3e-2)
    assert calls["attention_bshd"] - before == (SETTINGS.layers if given == "a cache" else 0)


def test_generation(calls: Counter[str]) -> None:
    """Only the prompt goes through the generated kernel; what follows meets the cache. Then the model is as before."""
    model = train_transformer.make_model(SETTINGS, DEVICE).eval()
    prompt = torch.arange(1, 8, device=DEVICE)[None].repeat(2, 1)
    before = calls["attention_bshd"]
    undo = patch_llama.patch()
    try:
        model.generate(prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)
    finally:
        undo()
    assert calls["attention_bshd"] == before + SETTINGS.layers
    model.generate(prompt, max_new_tokens=3, do_sample=False, pad_token_id=0)
    assert calls["attention_bshd"] == before + SETTINGS.layers


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
    training_report.report(tmp_path, tmp_path / "docs")
    page = (tmp_path / "docs" / "training.md").read_text()
    text = " ".join(page.split())
    assert "unpatched in round 2 gave the same losses" in text
    every = sorted(abs(one - other) for one, other in zip(runs[1]["losses"], runs[0]["losses"], strict=True))
    most = every[-1]
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
    training_report.load(tmp_path)
    (tmp_path / "tritongen-1.json").write_text(json.dumps({**patched, "start": "another"}))
    with pytest.raises(SystemExit, match="differ in their start"):
        training_report.load(tmp_path)
