"""What is scattered and added up, `scatter_sum` and gradients of `take` where elements repeat, beside a float64 oracle.

The oracle is torch's own of a formula that stands beside each spec, its gradient by autograd.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.harness.importing import built, runtime_of, written
from tests.harness.oracles import compare, differentiated
from tritongen.operator.compile import backward_of, forward_of
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

F = torch.nn.functional
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 6e-3}
Tensors = tuple[torch.Tensor, ...]
V = 7  # the length of what is taken from, so that elements repeat


@dataclass(frozen=True)
class Case:
    """Inputs with the shapes and values that they have, lines of [compute], the output y, and what torch computes."""

    inputs: dict[str, str]  # floats are of one dtype, T
    shapes: tuple[tuple[int, ...], ...]
    compute: str
    torch: Callable[..., torch.Tensor]
    output: str = "auto"
    low: int = 0
    high: int = V
    op: str = ""
    params: str = ""

    def spec(self, more: str = "") -> Spec:
        inputs = "\n".join(f'{name} = "{kind}"' for name, kind in self.inputs.items())
        lines = "\n".join(
            f'{name} = "{math}"' for name, math in (line.split(" = ", 1) for line in self.compute.split("\n"))
        )
        wrt = [name for name, kind in self.inputs.items() if "int" not in kind]
        text = f"""[op]
name = "scattered"
{self.op}
[types]
T = "float"
[inputs]
{inputs}
[params]
{self.params}
[compute]
{lines}
[outputs]
y = "{self.output}"
[grad]
wrt = {wrt}
{more}
"""
        return read_spec("scattered.toml", text.replace("'", '"'))

    def tensors(self, dtype: torch.dtype) -> Tensors:
        random = torch.Generator().manual_seed(0)
        made = []
        for kind, shape in zip(self.inputs.values(), self.shapes, strict=True):
            if "int" in kind:
                of = {"int32": torch.int32, "uint8": torch.uint8}.get(kind.partition("[")[0], torch.int64)
                made.append(torch.randint(self.low, self.high, shape, generator=random).to(of))
            else:
                made.append(torch.randn(shape, generator=random, dtype=torch.float64).to(dtype))
        return tuple(made)


def _rms(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def _or_nan(table: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    inside = (ids >= 0) & (ids < len(table))
    return torch.where(inside[:, None], table[ids.clamp(0, len(table) - 1)], torch.nan)


def _windows(x: torch.Tensor, w: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    padded = F.pad(x, (1, 1))
    return (padded.unfold(1, 3, 1) * w).sum(-1) * like


def _summed(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    """Rows of x by their numbers, those outside left out."""
    inside = (i >= 0) & (i < V)
    return torch.zeros(V, *x.shape[1:], dtype=x.dtype).index_add(0, i[inside], x[inside])


CASES = {
    "sums": Case(
        {"x": "T[P, D]", "v": "T[V]", "i": "int64[P]"},
        ((40, 5), (V,), (40,)),
        "y = scatter_sum(x * x, i - 2, V) * v",
        lambda x, v, i: _summed(x * x, i - 2) * v[:, None],
        "x[V, D]",
        -1,
        V + 4,
    ),
    "sums_of_lines": Case(
        {"x": "T[B, P]", "v": "T[V]", "i": "int32[B, P]"},
        ((3, 40), (V,), (3, 40)),
        "y = softmax(scatter_sum(x, i, V, over=P) + v, V)",
        lambda x, v, i: (torch.zeros(3, V, dtype=x.dtype).scatter_add(1, i.long(), x) + v).softmax(1),
    ),
    "sums_over_two_axes": Case(
        {"x": "T[..., D]", "v": "T[V, D]", "i": "int64[...]"},
        ((3, 20, 5), (V, 5), (3, 20)),
        "y = exp(scatter_sum(x, i, V)) * v",
        lambda x, v, i: _summed(x.flatten(0, 1), i.flatten()).exp() * v,
        "v",
    ),
    "sums_of_columns": Case(
        {"x": "T[D]", "v": "T[V, W]", "i": "int64[P]"},
        ((5,), (V, V), (40,)),
        "y = scatter_sum(x, i * 5, V, W) * v",
        lambda x, v, i: torch.bincount(i * 5, minlength=V * V).view(V, V, 1) * x * v[:, :, None],
        "x[V, W, D]",
    ),
    "counts": Case(
        {"v": "T[V]", "i": "uint8[P]"},
        ((V,), (40,)),
        "y = v * scatter_sum(1, i, V) + scatter_sum(1.0, i, V)",
        lambda v, i: (v + 1) * torch.bincount(i, minlength=V),
    ),
    "within_one_axis": Case(
        {"x": "T[V, D]", "i": "int64[V]"},
        ((V, 5), (V,)),
        "y = scatter_sum(softmax(x, D), i, V)",
        lambda x, i: _summed(x.softmax(1), i),
    ),
    "rows": Case({"t": "T[V, N]", "i": "int[...]"}, ((V, 5), (4, 9)), "y = take(t, i, V)", lambda t, i: t[i]),
    "bytes": Case(
        {"t": "T[V, N]", "i": "uint8[S]"}, ((V, 5), (40,)), "y = take(t, i, V)", lambda t, i: t[i.long()], "t[S, N]"
    ),
    "outside": Case(
        {"t": "T[V, N]", "i": "int64[S]"}, ((V, 5), (40,)), "y = take(t, i, V)", _or_nan, "t[S, N]", -3, V + 3
    ),
    "scaled": Case(
        {"t": "T[V, N]", "p": "T[S, N]", "w": "T[N]", "i": "int64[..., S]"},
        ((V, 5), (9, 5), (5,), (4, 9)),
        "y = take(t, i, V) * w + p",
        lambda t, p, w, i: t[i] * w + p,
        "t[..., S, N]",
    ),
    "norm_of_rows": Case(
        {"t": "T[V, N]", "w": "T[N]", "i": "int64[..., S]"},
        ((V, 21), (21,), (2, 9)),
        "x = take(t, i, V)\ny = x * rsqrt(mean(x * x, N) + 1e-6) * w",
        lambda t, w, i: _rms(t[i]) * w,
        "t[..., S, N]",
    ),
    "bag": Case(
        {"t": "T[V, N]", "i": "int64[B, S]"},
        ((V, 5), (6, 9)),
        "y = sum(take(t, i, V), S)",
        lambda t, i: F.embedding_bag(i, t, mode="sum"),
        "t[B, N]",
    ),
    "own_line": Case(
        {"x": "T[..., V]", "i": "int64[..., K]"},
        ((3, 2, V), (3, 2, 19)),
        "y = take(x, i, V)",
        lambda x, i: x.gather(-1, i),
    ),
    "lines_of_rows": Case(
        {"x": "T[B, V, N]", "i": "int32[B, S]"},
        ((3, V, 5), (3, 19)),
        "y = take(x, i, V)",
        lambda x, i: x.gather(1, i.long()[:, :, None].expand(-1, -1, 5)),
        "x[B, S, N]",
    ),
    "columns": Case(
        {"x": "T[..., V]", "i": "int64[K]"}, ((3, 5, V), (19,)), "y = take(x, i, V)", lambda x, i: x[..., i]
    ),
    "permuted": Case(
        {"x": "T[M, V]", "i": "int64[V]"}, ((5, V), (V,)), "y = take(x, i, V) * x", lambda x, i: x[:, i] * x
    ),
    "two_axes": Case(
        {"x": "T[V, W, C]", "r": "int32[P]", "c": "int64[P]"},
        ((V, V, 3), (29,), (29,)),
        "y = take(take(x, r, V), c, W)",
        lambda x, r, c: x[r.long(), c],
        "x[P, C]",
    ),
    "elements": Case(
        {"x": "T[V, W, U]", "a": "int64[P]", "b": "int64[Q]", "c": "int64[P, Q]"},
        ((V, V, V), (5,), (6,), (5, 6)),
        "y = take(take(take(x, a, V), b, W), c, U)",
        lambda x, a, b, c: x[a[:, None], b, c],
        "x[P, Q]",
    ),
    "softmax_of_a_lookup": Case(
        {"s": "T[..., M, N]", "b": "T[V]", "i": "int32[M, N]"},
        ((2, 6, 9), (V,), (6, 9)),
        "y = softmax(s * 0.5 + take(b, i, V), N)",
        lambda s, b, i: (s * 0.5 + b[i.long()]).softmax(-1),
    ),
    "line_behind_a_norm": Case(
        {"t": "T[V, N]", "i": "int64[S]"},
        ((V, 21), (40,)),
        "h = t * rsqrt(mean(t * t, N) + 1e-6)\ny = take(h, i, V)",
        lambda t, i: _rms(t)[i],
        "t[S, N]",
    ),
    "weights_of_experts": Case(
        {"x": "T[B, K]", "w": "T[V, N, K]", "e": "int64[B]"},
        ((11, 9), (V, 5, 9), (11,)),
        "y = sum(x * take(w, e, V), K)",
        lambda x, w, e: torch.einsum("bk,bnk->bn", x, w[e]),
        "x[B, N]",
    ),
    "bias_of_a_matmul": Case(
        {"x": "T[M, K]", "w": "T[N, K]", "b": "T[V]", "g": "int64[N]"},
        ((11, 9), (19, 9), (V,), (19,)),
        "y = sum(x * w, K) + take(b, g, V)",
        lambda x, w, b, g: x @ w.T + b[g],
    ),
    "computed_positions": Case(
        {"t": "T[V, N]", "i": "int32[S]"},
        ((V, 5), (40,)),
        "y = take(t, minimum(i + 2, 5), V)",
        lambda t, i: t[(i + 2).clamp(max=5).long()],
        "t[S, N]",
    ),
    "positions_that_are_taken": Case(
        {"t": "T[V, N]", "m": "int64[U]", "i": "int64[S]"},
        ((V, 5), (V,), (40,)),
        "y = take(t, take(m, i, U), V)",
        lambda t, m, i: t[m[i]],
        "t[S, N]",
    ),
    "twice_from_one_table": Case(
        {"t": "T[V, N]", "i": "int64[S]", "j": "int64[S]"},
        ((V, 5), (40,), (40,)),
        "y = take(t, i, V) * take(t, j, V)",
        lambda t, i, j: t[i] * t[j],
        "t[S, N]",
    ),
    "table_beside_its_rows": Case(
        {"t": "T[V, N]", "i": "int64[V]"}, ((V, 5), (V,)), "y = take(t, i, V) + exp(t)", lambda t, i: t[i] + t.exp()
    ),
    "repeated_elements": Case(
        {"x": "T[M, V]", "like": "T[P]"},
        ((5, V), (2 * V,)),
        "y = take(x, index(P) // 2, V) * like",
        lambda x, like: x.repeat_interleave(2, 1) * like,
        "x[M, P]",
    ),
    "windows": Case(
        {"x": "T[B, V]", "w": "T[R]", "like": "T[P]"},
        ((3, V), (3,), (V,)),
        "at = index(P) + index(R) - 1\nis_in = (at >= 0) & (at < size(V))\n"
        "tap = where(is_in, take(x, at, V), 0)\ny = sum(tap * w, R) * like",
        _windows,
        "x[B, P]",
    ),
    "groups_of_axes": Case(
        {"t": "T[V, (H=2 D)]", "w": "T[H=2]", "i": "int64[S]"},
        ((V, 10), (2,), (40,)),
        "y = take(t, i, V) * w",
        lambda t, w, i: (t[i].unflatten(1, (2, 5)) * w[:, None]).flatten(1),
        "t[S, (H=2 D)]",
    ),
    "padded_rows": Case(
        {"t": "T[V, N]", "i": "int64[S]"},
        ((V, 5), (40,)),
        "y = where(i == pad, 0, take(t, i, V))",
        lambda t, i: F.embedding(i, torch.cat([t[:3], t[3:4] * 0, t[4:]])),
        "t[S, N]",
        params="pad = 3",
    ),
    "chosen": Case(
        {"t": "T[V, N]", "w": "T[N]", "i": "int64[S]"},
        ((V, 5), (5,), (40,)),
        "y = take(t, i, V) * w if flag else w + index(S) * 0",
        lambda t, w, i: t[i] * w,
        "t[S, N]",
        params="flag = true",
    ),
    "statistics_by_group": Case(
        {"x": "T[M, N]", "g": "int64[M]", "m": "T[V]"},
        ((11, 5), (11,), (V,)),
        "y = (x - take(m, g, V)) * exp(-take(m, g, V))",
        lambda x, g, m: (x - m[g][:, None]) * torch.exp(-m[g][:, None]),
    ),
    "bias_by_distance": Case(
        {"s": "T[M, N]", "b": "T[R]"},
        ((4, 4), (V,)),
        "y = softmax(s + take(b, index(M) - index(N) + 3, R), N)",
        lambda s, b: (s + b[torch.arange(4)[:, None] - torch.arange(4) + 3]).softmax(-1),
    ),
    "optional_positions": Case(
        {"t": "T[V, N]", "i": "int64[V] = 0"}, ((V, 5), (V,)), "y = take(t, i, V) * 2", lambda t, i: t[i] * 2
    ),
    "group_that_is_taken": Case(
        {"t": "T[(V W=2), N]", "i": "int64[S]"},
        ((2 * V, 5), (40,)),
        "y = take(t, i, V)",
        lambda t, i: t.unflatten(0, (V, 2))[i],
        "t[S, W, N]",
    ),
    "three_tables": Case(
        {"t": "T[V, N]", "p": "T[S, N]", "u": "T[U, N]", "w": "T[N]", "i": "int64[..., S]", "j": "int64[..., S]"},
        ((V, 9), (11, 9), (V, 9), (9,), (2, 11), (2, 11)),
        "h = take(t, i, V) + p + take(u, j, U)\ny = (h - mean(h, N)) * rsqrt(var(h, N, correction=0) + 1e-5) * w",
        lambda t, p, u, w, i, j: F.layer_norm(t[i] + p + u[j], (9,), w),
        "t[..., S, N]",
    ),
    "by_atomics": Case(
        {"t": "T[V, N]", "i": "int64[S]"},
        ((V, 5), (40,)),
        "y = take(t, i, V)",
        lambda t, i: t[i],
        "t[S, N]",
        op="deterministic = false",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    """Forward and backward, twice to the same bits."""
    case = CASES[name]
    function = built(case.spec(), tmp_path).scattered
    for dtype in TOLERANCES:
        check(case, function, dtype)


def check(case: Case, function: Callable[..., torch.Tensor], dtype: torch.dtype) -> None:
    tensors = case.tensors(dtype)
    places = [place for place, one in enumerate(tensors) if one.is_floating_point()]
    found = compare(function, case.torch, tensors, places, TOLERANCES[dtype])
    for one, again in zip(found, differentiated(function, tensors, places, dtype), strict=True):
        assert case.op or torch.equal(one.cpu().nan_to_num(), again.cpu().nan_to_num())


def test_what_is_not_chosen_has_no_gradient(tmp_path: Path) -> None:
    case = CASES["chosen"]
    function = built(case.spec(), tmp_path).scattered
    t, w, i = case.tensors(torch.float32)
    t.requires_grad_()
    w.requires_grad_()
    (dt,) = torch.autograd.grad(function(t, w, i, flag=False).sum(), t)
    assert not dt.any()


@pytest.mark.parametrize("name", ["norm_of_rows", "bias_by_distance", "twice_from_one_table"])
def test_lines_by_themselves(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    check(case, built(case.spec("[schedule]\nfuse = false"), tmp_path).scattered, torch.float32)


def test_atomics_where_they_are_permitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of half precision the sums would have to be rounded after them."""
    sorted_dtypes = []
    for name in ("by_atomics", "rows"):
        package = built(CASES[name].spec(), tmp_path / name)
        runtime = runtime_of(package, "scatter_sums")
        add = runtime._add_sorted
        monkeypatch.setattr(
            runtime, "_add_sorted", lambda *args, add=add: sorted_dtypes.append(args[0].dtype) or add(*args)
        )
        for dtype in (torch.float16, torch.float32):
            t, i = CASES[name].tensors(dtype)
            package.scattered(t.requires_grad_(), i).sum().backward()
    assert sorted_dtypes == [torch.float16, torch.float16, torch.float32]


class InPlace(TorchDispatchMode):
    """Which of torch's functions change a tensor in place, but for those by which the interpreter reads and writes."""

    interpreters = ("set_", "copy_", "resize_")

    def __init__(self) -> None:
        super().__init__()
        self.called: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func._schema.is_mutable and not func.__name__.startswith(self.interpreters):
            self.called.append(func.__name__)
        return func(*args, **kwargs or {})


def test_torch_changes_nothing_in_place(tmp_path: Path) -> None:
    """Of a result that its forward changes so, torch.compile of torch 2.11 takes the gradient to be zeros."""
    path = Path(__file__).parents[2] / "examples" / "specs" / "scatter_sum.toml"
    package = built(read_spec(path.name, path.read_text(encoding="utf-8")), tmp_path)
    with InPlace() as seen:
        package.scatter_sum(torch.randn(5, 3), torch.randint(0, 7, (5,)), n_nodes=7)
    assert seen.called == []


@pytest.mark.parametrize("register", ["custom_op", "triton_op"])
def test_registered(register: str, tmp_path: Path) -> None:
    case = CASES["scaled"]
    more = f'[torch]\nregister = "{register}"\nnamespace = "scattered_{register}"'
    check(case, built(case.spec(more), tmp_path).scattered, torch.float32)


def test_an_index_into_its_own_row_is_compared() -> None:
    """As in a cross entropy: nothing is sorted for one element of each row."""
    text = """
[op]
name = "picked"
[inputs]
x = "float[M, N]"
i = "int64[M]"
[compute]
y = "take(x, i, N)"
[outputs]
y = "x"
[grad]
wrt = ["x"]
"""
    spec = read_spec("picked.toml", text)
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    assert [step.family.title for step in backward.plan.steps] == ["elementwise"]


@pytest.mark.parametrize(
    ("inputs", "lines", "wrt"),
    [
        # One shape tells all lengths.
        ('x = "T[B, O, N, C]"\nz = "T[N, O, C]"\nat = "int64[K=3]"', 'y = "sum(take(x, at, N) * z, O, K, B)"', "xz"),
        # What a row takes is summed by the first stage of a split, and not read by the second.
        (
            'x = "T[O, B, K=3, N]"\nz = "T[N, O]"\nu = "T[O]"\nat = "int64[N]"',
            'p = "size(N) - 1 - index(N)"\nv = "take(x, p, N)"\nw = "take(z, at, N)"\ny = "sum(tanh(v * w * u), K, N)"',
            "xzu",
        ),
        # What a mean is of is not computed again where columns are mapped.
        (
            'x = "T[B, K=3, N, O]"\nz = "T[B, N, K=3, C]"',
            'v = "take(x, size(N) - 1 - index(N), N)"\nw = "where(index(K) < size(N), take(z, index(K), N), 0.0)"\n'
            'y = "mean(v * w, C)"',
            "xz",
        ),
    ],
)
def test_functions_and_kernels_read_what_they_are_given(inputs: str, lines: str, wrt: str, tmp_path: Path) -> None:
    head, tail = '[op]\nname = "taken"\n[types]\nT = "float"', f'[outputs]\ny = "auto"\n[grad]\nwrt = {[*wrt]}\n'
    written(read_spec("taken.toml", f"{head}\n[inputs]\n{inputs}\n[compute]\n{lines}\n{tail}"), tmp_path)
