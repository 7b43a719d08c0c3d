"""Text by a small Llama in plain torch, with keys and values in pages of one cache, which attention_paged reads.

    python examples/generate.py    # on a GPU, or in Triton's interpreter, which takes about a minute

The model learns a sonnet by heart, character by character. Then it goes on from the beginnings of lines, a few of them
at a time: a sequence that ends gives its pages back, and the next beginning takes its place. Each step computes one row
for each sequence, whatever their lengths. In the end the same model computes all of it again without a cache, with
torch's attention, and must have chosen the same characters.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # Read when triton is imported.

from examples.ops.attention_paged import attention_paged

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TEXT = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance or nature's changing course untrimm'd;
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st;
"""
BEGINNINGS = ("Shall I compare thee", "Rough winds do", "Sometime too hot", "Nor lose", "By chance or nature's chan")
CHARACTERS = sorted(set(TEXT))

# What a layer makes of its queries [B, heads, M, width], and of keys and values [B, key heads, M, width]; its number.
Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A model, its training, the sequences that are generated at a time, and the positions of a page."""

    layers: int = 2
    heads: int = 4
    key_heads: int = 2
    width: int = 16  # of a head
    steps: int = 300
    batch: int = 16
    length: int = 64
    learning_rate: float = 5e-3
    sequences: int = 3
    longest: int = 64  # characters of a sequence
    page: int = 8


class Layer(nn.Module):
    """Attention and a gated MLP, each behind a norm and beside what it is added to."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        hidden, keys = settings.heads * settings.width, settings.key_heads * settings.width
        self.attention_norm, self.mlp_norm = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q, self.o = nn.Linear(hidden, hidden, bias=False), nn.Linear(hidden, hidden, bias=False)
        self.k, self.v = nn.Linear(hidden, keys, bias=False), nn.Linear(hidden, keys, bias=False)
        self.gate, self.up = nn.Linear(hidden, 2 * hidden, bias=False), nn.Linear(hidden, 2 * hidden, bias=False)
        self.down = nn.Linear(2 * hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, angles: torch.Tensor, number: int, attend: Attend) -> torch.Tensor:
        normed = self.attention_norm(x)
        q, k, v = (
            projection(normed).unflatten(-1, (-1, self.settings.width)).transpose(1, 2)
            for projection in (self.q, self.k, self.v)
        )
        mean = attend(number, turned(q, angles), turned(k, angles), v)
        x = x + self.o(mean.transpose(1, 2).flatten(2))
        normed = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(normed)) * self.up(normed))


class Decoder(nn.Module):
    """A Llama of characters."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        hidden = settings.heads * settings.width
        self.embedding = nn.Embedding(len(CHARACTERS), hidden)
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.layers))
        self.norm, self.head = nn.RMSNorm(hidden), nn.Linear(hidden, len(CHARACTERS), bias=False)
        half = settings.width // 2
        self.register_buffer("frequencies", 10_000.0 ** -(torch.arange(half) / half))

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend) -> torch.Tensor:
        """The logits [B, M, characters] of what follows each of the tokens [B, M], which are at some positions."""
        angles = positions[:, None, :, None] * self.frequencies
        x = self.embedding(tokens)
        for number, layer in enumerate(self.layers):
            x = layer(x, angles, number, attend)
        return self.head(self.norm(x))


def turned(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of heads [B, heads, M, width] by angles [B, 1, M, width / 2]."""
    one, other = x.chunk(2, -1)
    return torch.cat((one * angles.cos() - other * angles.sin(), other * angles.cos() + one * angles.sin()), -1)


def causal(_: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """torch's attention, without a cache."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class PagedCache:
    """Keys and values of sequences, each in pages of its own, which it takes from a common pool as it grows.

    `keys` and `values` have [pages, positions of a page, key heads, width] for each layer; `table` [sequences, pages]
    has the numbers of the pages of a sequence in their order, and `lengths` how many positions it has.
    """

    def __init__(self, settings: Settings) -> None:
        self.size = settings.page
        n_pages = math.ceil(settings.longest / self.size)
        self.free = [*range(settings.sequences * n_pages)]
        shape = (settings.layers, len(self.free), self.size, settings.key_heads, settings.width)
        # Attention reads nothing beyond the lengths, of memory or of the table.
        self.keys, self.values = (torch.full(shape, torch.nan, device=DEVICE) for _ in range(2))
        self.table = torch.full((settings.sequences, n_pages), -1, dtype=torch.int32, device=DEVICE)
        self.lengths = [0] * settings.sequences

    def release(self, sequence: int) -> None:
        """Give the pages of a sequence back."""
        count = math.ceil(self.lengths[sequence] / self.size)
        self.free += self.table[sequence, :count].tolist()
        self.table[sequence] = -1
        self.lengths[sequence] = 0

    def append(self, sequences: list[int], count: int) -> tuple[torch.Tensor, Attend]:
        """The next so many positions of some sequences, and the attention that writes what they have and reads all."""
        before = torch.tensor([self.lengths[one] for one in sequences], device=DEVICE)
        for one in sequences:
            held = math.ceil(self.lengths[one] / self.size)
            self.lengths[one] += count
            for place in range(held, math.ceil(self.lengths[one] / self.size)):
                self.table[one, place] = self.free.pop()
        positions = before[:, None] + torch.arange(count, device=DEVICE)
        table, lengths = self.table[sequences], (before + count).int()
        page, place = table.gather(1, positions // self.size), positions % self.size

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.keys[layer], self.values[layer]
            keys[page, place], values[page, place] = k.transpose(1, 2), v.transpose(1, 2)
            return attention_paged(q, keys, values, table, lengths, scale=q.shape[-1] ** -0.5)

        return positions, attend


@dataclasses.dataclass
class Sequence:
    """Characters so far, and the logits from which those behind the beginning were chosen."""

    tokens: list[int]
    logits: list[torch.Tensor] = dataclasses.field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(CHARACTERS[token] for token in self.tokens)

    def add(self, logits: torch.Tensor) -> None:
        self.logits.append(logits)
        self.tokens.append(int(logits.argmax()))


def trained(settings: Settings) -> Decoder:
    """A model that knows the text, as far as so many steps teach it."""
    torch.manual_seed(0)
    model = Decoder(settings).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), settings.learning_rate)
    text = torch.tensor([CHARACTERS.index(one) for one in TEXT], device=DEVICE)
    lines = torch.tensor([0, *(place + 1 for place, one in enumerate(TEXT[:-1]) if one == "\n")], device=DEVICE)
    positions = torch.arange(settings.length, device=DEVICE)[None]
    for _ in range(settings.steps):
        first = lines[torch.randint(len(lines), (settings.batch, 1))]
        rows = text[(first + torch.arange(settings.length + 1, device=DEVICE)) % len(text)]
        logits = model(rows[:, :-1], positions, causal)
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@torch.no_grad()
def generated(model: Decoder, settings: Settings, beginnings: tuple[str, ...] = BEGINNINGS) -> list[Sequence]:
    """Lines with some beginnings, so many at a time, up to their ends or the longest that there may be."""
    cache = PagedCache(settings)
    every = [Sequence([CHARACTERS.index(one) for one in beginning]) for beginning in beginnings]
    waiting, running = every[::-1], dict[int, Sequence]()

    def go_on(places: list[int], tokens: list[list[int]]) -> None:
        """Some sequences by a character, after the tokens that the cache does not have of them."""
        logits = model(torch.tensor(tokens, device=DEVICE), *cache.append(places, len(tokens[0])))
        for place, row in zip(places, logits[:, -1], strict=True):
            sequence = running[place]
            sequence.add(row)
            if sequence.text.endswith("\n") or len(sequence.tokens) == settings.longest:
                cache.release(place)
                del running[place]

    while waiting or running:
        for place in range(settings.sequences):
            if waiting and place not in running:
                running[place] = waiting.pop()
                go_on([place], [running[place].tokens])
        if running:
            go_on([*running], [one.tokens[-1:] for one in running.values()])
    return every


@torch.no_grad()
def difference(model: Decoder, sequence: Sequence) -> float:
    """How far the logits of a sequence are from those of the model without a cache, at most."""
    tokens = torch.tensor([sequence.tokens[:-1]], device=DEVICE)
    positions = torch.arange(tokens.shape[1], device=DEVICE)[None]
    logits = model(tokens, positions, causal)[0, -len(sequence.logits) :]
    if logits.argmax(-1).tolist() != sequence.tokens[-len(sequence.logits) :]:
        raise AssertionError(f"torch's attention goes on otherwise from {sequence.text!r}")
    return float((torch.stack(sequence.logits) - logits).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for field in dataclasses.fields(Settings):
        parser.add_argument(f"--{field.name.replace('_', '-')}", type=type(field.default), default=field.default)
    settings = Settings(**vars(parser.parse_args()))
    model = trained(settings)
    sequences = generated(model, settings)
    for sequence in sequences:
        print(sequence.text.rstrip("\n"))
    worst = max(difference(model, sequence) for sequence in sequences)
    print(f"torch's attention chooses the same characters; logits differ by {worst:.1e} at most")


if __name__ == "__main__":
    main()
