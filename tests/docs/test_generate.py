"""The example of generation: a cache of pages gives what the model gives without one."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples import generate

SETTINGS = generate.Settings(layers=1, steps=20, sequences=2, longest=24, page=4)


def test_generated_text_is_that_of_the_model_without_a_cache() -> None:
    """Of sequences of several lengths, the third of which takes the place of one that ends."""
    model = generate.trained(SETTINGS)
    beginnings = ("Shall I compare the", "Rough winds do shak", "Some")
    sequences = generate.generated(model, dataclasses.replace(SETTINGS, longest=22), beginnings)
    for sequence, beginning in zip(sequences, beginnings, strict=True):
        assert sequence.text.startswith(beginning)
        assert len(sequence.tokens) == len(beginning) + len(sequence.logits)
        assert sequence.text.endswith("\n") or len(sequence.tokens) == 22
        assert generate.difference(model, sequence) < 1e-4


def test_another_text_is_told() -> None:
    model = generate.trained(dataclasses.replace(SETTINGS, steps=1))
    logits = torch.zeros(len(generate.CHARACTERS), device=generate.DEVICE)
    sequence = generate.Sequence([0, 1, 2])
    sequence.add(logits)
    tokens = torch.tensor([sequence.tokens[:3]], device=generate.DEVICE)
    best = model(tokens, torch.arange(3, device=generate.DEVICE)[None], generate.causal)[0, -1].argmax()
    sequence.tokens[-1] = (int(best) + 1) % len(generate.CHARACTERS)
    with pytest.raises(AssertionError, match="goes on otherwise"):
        generate.difference(model, sequence)


def test_pages_go_back_to_the_pool() -> None:
    """A sequence takes pages as it grows, and those of others that have ended."""
    cache = generate.PagedCache(SETTINGS)
    assert len(cache.free) == 12
    positions, _ = cache.append([0], 5)
    assert positions.tolist() == [[0, 1, 2, 3, 4]]
    cache.append([1], 4)
    positions, _ = cache.append([0, 1], 1)
    assert positions.tolist() == [[5], [4]]
    assert cache.table.tolist() == [[11, 10, *[-1] * 4], [9, 8, *[-1] * 4]]
    cache.release(0)
    cache.append([1], 4)
    assert cache.table.tolist() == [[-1] * 6, [9, 8, 10, *[-1] * 3]]
    assert cache.lengths == [0, 9]
    assert sorted([*cache.free, 8, 9, 10]) == [*range(12)]
