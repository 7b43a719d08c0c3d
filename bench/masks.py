"""Rates of the forms of attention, forward and backward, beside FlexAttention and, where it has one, torch's own.

    tritongen build specs/ examples/specs/
    python bench/masks.py [--only NAME] [--rounds COUNT]

Prints a Markdown table for docs/performance.md: TFLOP/s of 32 heads of 128 and bfloat16, which count the tiles of 128
by 128 scores that a mask leaves, as FlexAttention's block masks do. Those are made beforehand and not timed. Backwards
are by queries, keys and values. Ours and its peers alternate, and the medians of the rounds are compared. The last
column is the relative difference of our results and FlexAttention's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import runner
import torch
import torch._functorch.config
import triton
from runner import Call, operator, rates
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

TILE = 128
WIDTH = 128
WINDOW = 1024
SCALE = WIDTH**-0.5
F: Any = torch.nn.functional
Tensors = tuple[torch.Tensor, ...]
Mask = Callable[[Any, Any, Any, Any], Any]  # of the batch, the head, the row and the column, as FlexAttention has it


@dataclass(frozen=True)
class Form:
    """A form of attention: its operator, the inputs besides queries, keys and values, and how its peers compute it.

    `more` makes those inputs for a batch, heads and a length. Of them, `mask` and `score` make FlexAttention's
    functions; None where there is nothing to be masked or changed.
    """

    name: str
    operator: str
    package: str = "ops"
    batch: int = 4
    length: int = 4096
    more: Callable[[int, int, int], Tensors] = lambda batch, heads, length: ()
    mask: Callable[..., Mask] | None = lambda *more: causal
    score: Callable[..., Callable[..., Any]] | None = None
    sinks: bool = False
    torch: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


def causal(b: Any, h: Any, m: Any, n: Any) -> Any:
    return n <= m


def same_document(q_document: torch.Tensor, k_document: torch.Tensor) -> Mask:
    return lambda b, h, m, n: (n <= m) & (q_document[b, m] == k_document[b, n])


def documents(batch: int, heads: int, length: int, count: int = 8) -> Tensors:
    """Numbers of documents that are packed into each sequence, in order, twice."""
    ends = torch.sort(torch.rand(batch, count - 1, device="cuda") * length, -1).values
    found = (torch.arange(length, device="cuda")[None, :, None] >= ends[:, None]).sum(-1).int()
    return found, found.clone()


def slopes(batch: int, heads: int, length: int) -> Tensors:
    return (2.0 ** (-8 * torch.arange(1, heads + 1, device="cuda") / heads),)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device="cuda")


def in_window(b: Any, h: Any, m: Any, n: Any) -> Any:
    return (n <= m) & (m - n < WINDOW)


FORMS = (
    Form(
        "causal",
        "attention",
        "generated",
        torch={"torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=SCALE)},
    ),
    Form("soft cap", "attention_softcap", score=lambda: lambda s, b, h, m, n: 30 * torch.tanh(s / 30)),
    Form(
        "slopes (ALiBi)",
        "attention_alibi",
        more=slopes,
        score=lambda slope: lambda s, b, h, m, n: s - slope[h] * (m - n),
    ),
    Form("8 packed documents", "attention_documents", more=documents, mask=same_document),
    Form(
        "bias [H, M, N], no mask",
        "attention_bias",
        more=lambda batch, heads, length: (drawn(heads, length, length),),
        mask=None,
        score=lambda bias: lambda s, b, h, m, n: s + bias[h, m, n],
        torch={"torch": lambda q, k, v, bias: F.scaled_dot_product_attention(q, k, v, bias[None], scale=SCALE)},
    ),
    Form("sink", "attention_sink", more=lambda batch, heads, length: (drawn(heads),), sinks=True),
    Form("window of 1,024, S = 16,384", "attention_window", length=16384, mask=lambda: in_window),
    Form("window of 1,024, S = 65,536", "attention_window", batch=1, length=65536, mask=lambda: in_window),
)


def tiles(mask: Mask, batch: int, length: int, device: str = "cuda") -> Tensors:
    """Whether each tile of scores has something in it, and whether it has everything: both [batch, rows, columns]."""
    steps = torch.arange(length, device=device)
    sequences = torch.arange(batch, device=device)[:, None, None]
    found: list[Tensors] = []
    for rows in steps.view(-1, TILE):
        left = mask(sequences, 0, rows[:, None], steps).expand(batch, TILE, length).unflatten(2, (-1, TILE))
        found.append((left.any(3).any(1), left.all(3).all(1)))
    some, every = zip(*found, strict=True)
    return torch.stack(some, 1), torch.stack(every, 1)


def block_mask(mask: Mask, some: torch.Tensor, every: torch.Tensor) -> BlockMask:
    """FlexAttention's, of such tiles: create_block_mask needs memory for every score."""
    partly, wholly = (
        (
            kind.sum(-1, dtype=torch.int32)[:, None],
            kind.int().argsort(dim=-1, descending=True, stable=True).int()[:, None].contiguous(),
        )
        for kind in (some & ~every, every)
    )
    return BlockMask.from_kv_blocks(*partly, *wholly, BLOCK_SIZE=TILE, mask_mod=mask)


@dataclass(frozen=True)
class Case:
    """A form with its inputs: the operations of a forward, and what computes one, by name."""

    form: Form
    operations: float
    inputs: Tensors
    calls: Mapping[str, Callable[..., Any]]

    def forwards(self) -> dict[str, Call]:
        return {name: partial(torch.no_grad()(call), *self.inputs) for name, call in self.calls.items()}

    def backwards(self) -> dict[str, Call]:
        """Each by its own graph, which is kept."""
        inputs = [tensor.detach().requires_grad_() for tensor in self.inputs[:3]]
        given = torch.randn_like(inputs[0])
        return {
            name: partial(torch.autograd.grad, call(*inputs, *self.inputs[3:]), inputs, given, retain_graph=True)
            for name, call in self.calls.items()
        }


def flexible(form: Form, some: torch.Tensor, every: torch.Tensor, more: Tensors) -> Callable[..., Any]:
    """FlexAttention, compiled for a form."""
    blocks = block_mask(form.mask(*more), some, every) if form.mask else None
    score = form.score(*more) if form.score else None

    def call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *more: torch.Tensor) -> Any:
        if not form.sinks:
            return flex_attention(q, k, v, score, blocks, SCALE)
        beside: Any
        o, beside = flex_attention(q, k, v, score, blocks, SCALE, return_aux=AuxRequest(lse=True))
        return o * torch.sigmoid(beside.lse - more[0][:, None]).unsqueeze(-1).to(o.dtype)

    return torch.compile(call, dynamic=False)


def cases(only: str, heads: int = 32) -> Iterator[Case]:
    torch._functorch.config.donated_buffer = False  # A graph that is kept cannot give its memory away.
    for form in FORMS:
        if only not in form.name:
            continue
        torch.manual_seed(0)
        torch.compiler.reset()
        more = form.more(form.batch, heads, form.length)
        mask = form.mask(*more) if form.mask else lambda b, h, m, n: (m + n) >= 0
        some, every = tiles(mask, form.batch, form.length)
        visited = float(some.sum()) * heads * TILE * TILE
        calls: dict[str, Callable[..., Any]] = {
            "ours": partial(operator(form.operator, form.package), scale=SCALE),
            "FlexAttention": flexible(form, some, every, more),
            **form.torch,
        }
        inputs = (*(drawn(form.batch, heads, form.length, WIDTH) for _ in "qkv"), *more)
        yield Case(form, 4 * visited * WIDTH, inputs, calls)


def row(case: Case, rounds: int) -> str:
    forwards, backwards = case.forwards(), case.backwards()
    ours, flex = (forwards[name]() for name in ("ours", "FlexAttention"))
    apart = float((ours - flex).float().norm() / flex.float().norm())
    found = [rates(forwards, case.operations, rounds), rates(backwards, 2.5 * case.operations, rounds)]
    cells = [f"{one[name]:,.0f}" if name in one else "" for one in found for name in ("ours", "FlexAttention", "torch")]
    return f"| {case.form.name} | {' | '.join(cells)} | {apart:.1e} |"


def main() -> None:
    made = runner.parser(__doc__, "forms")
    made.add_argument("--rounds", type=int, default=runner.ROUNDS)
    options = runner.given(made, "examples/specs")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, Triton {triton.__version__}\n")
    head = "ours | FlexAttention | torch"
    print(f"| | forward: {head} | backward: {head} | difference |\n|---|{'--:|' * 7}")
    for case in cases(options.only):
        print(row(case, options.rounds), flush=True)


if __name__ == "__main__":
    main()
