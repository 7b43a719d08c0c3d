"""Attention to pages in other forms: tables of heads, scales, masks and biases of positions, each with its formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

R = 3  # query heads for each of keys
MEAN = "o = sum(softmax(s, J, S) * take(v, page, P), J, S)"


def rows_of(matrix: torch.Tensor, page: torch.Tensor) -> torch.Tensor:
    """The rows [B, G R, J S, …] of sequences, all of whose pages are there."""
    return matrix[page.long()].flatten(1, 2).transpose(1, 2).repeat_interleave(R, 1)


@dataclass(frozen=True)
class Form:
    """Other inputs than those of cases, all of whose pages are there; `streams` if one kernel goes along them."""

    inputs: str
    compute: str
    torch: Callable[..., torch.Tensor]
    streams: bool = True
    result: str = "B, (G R), M, E"

    def text(self) -> str:
        pairs = [entry.split(":") for entry in self.inputs.split("; ")]
        inputs = "\n".join(f'{one} = "{kind}"' for one, kind in pairs)
        compute = "\n".join('{} = "{}"'.format(*line.split(" = ", 1)) for line in self.compute.split("\n"))
        head = '[op]\nname = "attend"\nsummary = "Attends to pages."\n[types]\nT = "float"\n'
        return f'{head}[inputs]\n{inputs}\n[compute]\n{compute}\n[outputs]\no = "q[{self.result}]"\n'

    def spec(self) -> Spec:
        return read_spec("attend.toml", self.text())


FORM_SIZES = {"B": 2, "G": 2, "R": R, "M": 3, "D": 8, "E": 12, "P": 7, "Q": 9, "S": 4, "J": 5}
QKV = "q:T[B, (G R), M, D]; k:T[P, S, G, D]; v:T[P, S, G, E]; page:int32[B, J]"
BYTES = "q:T[B, (G R), M, D]; k:float8_e4m3fn[P, S, G, D]; v:int8[P, S, G, E]; page:int32[B, J]"
SCORES = "s = sum(q * take(k, page, P), D) * 0.25"


def mean(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, added: torch.Tensor | float = 0) -> torch.Tensor:
    return torch.softmax(q @ k.mT * 0.25 + added, -1) @ v


def of_columns(numbers: torch.Tensor, page: torch.Tensor) -> torch.Tensor:
    return numbers[page.long()].flatten(1, 2)[:, None, None]


def of_heads(matrix: torch.Tensor, page: torch.Tensor) -> torch.Tensor:
    each = [matrix[page[:, head].long()].flatten(1, 2)[:, :, head] for head in range(2)]
    return torch.stack(each, 1).repeat_interleave(3, 1)


def with_sink(q: torch.Tensor, k: torch.Tensor, page: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    rows = rows_of(k, page)
    sink = x.repeat(2)[:, None, None].expand(2, 6, 3, 1)
    return torch.softmax(torch.cat((q @ rows.mT * 0.25, sink), -1), -1)[..., :-1] @ rows


FORMS = {
    "a_table_of_heads": Form(
        QKV.replace("[B, J]", "[B, G, J]"),
        f"{SCORES}\n{MEAN}",
        lambda q, k, v, page: mean(q, of_heads(k, page), of_heads(v, page)),
    ),
    "between": Form(
        QKV,
        "x = where(index(J) * 4 + index(S) < 15, sum(q * take(k, page, P), D) * 0.25, -inf)\n"
        f"s = where(index(J, S) > 6, x, -inf)\n{MEAN}",
        lambda q, k, v, page: mean(q, rows_of(k, page)[:, :, 7:15], rows_of(v, page)[:, :, 7:15]),
    ),
    "a_sink_and_keys_for_values": Form(
        "q:T[B, (G R), M, D]; k:T[P, S, G, D]; page:int32[B, J]; x:T[R]",
        f"{SCORES}\nm = maximum(max(s, J, S), x)\ne = exp(s - m)\n"
        "o = sum(e * take(k, page, P), J, S) / (sum(e, J, S) + exp(x - m))",
        with_sink,
        result="B, (G R), M, D",
    ),
    "values_in_a_table_of_their_own": Form(
        f"{QKV.replace('v:T[P', 'v:T[Q')}; other:int32[B, J]",
        f"{SCORES}\no = sum(softmax(s, J, S) * take(v, other, Q), J, S)",
        lambda q, k, v, page, other: mean(q, rows_of(k, page), rows_of(v, other)),
        streams=False,
    ),
    "a_bias_not_in_pages": Form(
        f"{QKV}; bias:T[M, (J S)]",
        f"{SCORES} + bias\n{MEAN}",
        lambda q, k, v, page, bias: mean(q, rows_of(k, page), rows_of(v, page), bias),
    ),
    "a_bias_in_pages": Form(
        f"{QKV}; bias:T[P, S]",
        f"{SCORES} + take(bias, page, P)\n{MEAN}",
        lambda q, k, v, page, bias: mean(q, rows_of(k, page), rows_of(v, page), of_columns(bias, page)),
    ),
    "a_bias_in_pages_of_each_head": Form(
        f"{QKV}; bias:T[P, (G R), S]",
        f"{SCORES} + take(bias, page, P)\n{MEAN}",
        lambda q, k, v, page, bias: mean(
            q, rows_of(k, page), rows_of(v, page), bias[page.long()].transpose(1, 2).flatten(2)[:, :, None]
        ),
    ),
    "a_bias_in_pages_with_rows": Form(
        f"{QKV}; bias:T[P, M, S]",
        f"{SCORES} + take(bias, page, P)\n{MEAN}",
        lambda q, k, v, page, bias: mean(
            q, rows_of(k, page), rows_of(v, page), bias[page.long()].transpose(1, 2).flatten(2)[:, None]
        ),
        streams=False,
    ),
    "scales_in_pages": Form(
        f"{BYTES}; x:float32[P, S]; y:float32[P, S]",
        "s = sum(q * (take(k, page, P) * take(x, page, P)), D) * 0.25\n"
        "o = sum(softmax(s, J, S) * (take(v, page, P) * take(y, page, P)), J, S)",
        lambda q, k, v, page, x, y: mean(
            q, *(rows_of(one.double() * scale[..., None, None], page) for one, scale in ((k, x), (v, y)))
        ),
    ),
    "scales_of_heads_in_pages": Form(
        f"{BYTES}; x:float32[P, G, S]",
        f"s = sum(q * take(k, page, P), D) * take(x, page, P) * 0.25\n{MEAN}",
        lambda q, k, v, page, x: mean(
            q, rows_of(k.double() * x.transpose(1, 2)[..., None], page), rows_of(v.double(), page)
        ),
    ),
    "scales_of_pages": Form(
        f"{BYTES}; x:float32[P]; y:float32[B, J]",
        f"s = sum(q * take(k, page, P), D) * take(x, page, P) * y * 0.25\n{MEAN}",
        lambda q, k, v, page, x, y: mean(
            q,
            rows_of(k.double(), page) * (x.double()[page.long()] * y).repeat_interleave(4, 1)[:, None, :, None],
            rows_of(v.double(), page),
        ),
    ),
    "a_mask_of_positions": Form(
        f"{QKV}; keep:bool[B, J, S]",
        f"s = where(keep | (index(J, S) == 0), sum(q * take(k, page, P), D) * 0.25, -inf)\n{MEAN}",
        lambda q, k, v, page, keep: mean(
            q,
            rows_of(k, page),
            rows_of(v, page),
            (keep.flatten(1) | (torch.arange(20, device=keep.device) == 0)).double().log()[:, None, None],
        ),
    ),
    "documents_of_positions": Form(
        f"{QKV}; of:int32[J, S]; row:int32[M]",
        f"s = where((of == row) | (index(J, S) == 0), sum(q * take(k, page, P), D) * 0.25, -inf)\n{MEAN}",
        lambda q, k, v, page, of, row: mean(
            q,
            rows_of(k, page),
            rows_of(v, page),
            ((of.flatten() == row[:, None]) | (torch.arange(20, device=of.device) == 0)).double().log(),
        ),
    ),
}
