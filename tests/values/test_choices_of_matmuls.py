"""`a if flag else b` between matmuls, and between steps: only what is chosen is multiplied, launched and saved."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.harness.importing import built, runtime_module, runtime_of
from tests.harness.oracles import DEVICE
from tritongen.spec.read import read_spec

SPECS = Path(__file__).parents[2] / "tests" / "specs"
STEPS = """
[op]
name = "row_or_column"
summary = "A matmul less the greatest of its rows, or of its columns."

[inputs]
x = "float[M, K]"
w = "float[K, N]"

[params]
kind = { choices = ["row", "column", "none"], default = "row" }

[compute]
h = "sum(x * w, K)"
y = "h - max(h, N) if kind == 'row' else h / (1 + max(abs(h), M)) if kind == 'column' else h"

[outputs]
y = "x"
"""
ABSENT = """
[op]
name = "matmul_of_steps"
summary = "A matmul of what other matmuls and columns give, or none."

[inputs]
q = "T[..., M, D]"
k = "T[..., N, D]"
v = "T[..., N, E]"
r = "T[..., M, E]"

[types]
T = "float"

[params]
kind = { choices = ["both", "none"], default = "both" }

[compute]
s = "sum(q * k, D)"
e = "s / (1 + max(abs(s), M))"
w = "v / (1 + max(abs(v), N))"
y = "sum(e * w, N) if kind == 'both' else r"

[outputs]
y = "q"

[grad]
wrt = ["q", "v"]
"""
KINDS = {"choice_of_matmul": ("both", "one", "other", "none"), "choice_of_steps": ("softmax", "mean", "none")}
REGISTERED = '\n[torch]\nregister = "custom_op"\nnamespace = "tritongen_choices"\n'


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    texts = {name: (SPECS / f"{name}.toml").read_text(encoding="utf-8") for name in KINDS}
    texts |= {f"registered_{name}": text.replace(f'"{name}"', f'"registered_{name}"') for name, text in texts.items()}
    texts |= {name: text + REGISTERED for name, text in texts.items() if name.startswith("registered_")}
    texts |= {"row_or_column": STEPS, "matmul_of_steps": ABSENT}
    return {name: built(read_spec(f"{name}.toml", text), tmp_path_factory.mktemp(name)) for name, text in texts.items()}


def drawn(name: str, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    m, k, n = 18, 35, 20
    shapes = {"choice_of_matmul": [(m, k), (k, n), (k, n), (k,), (m, n)]}.get(name, [(m, k), (k, n)])
    return [(torch.rand(shape, generator=generator, dtype=torch.float64) - 0.3).to(DEVICE, dtype) for shape in shapes]


def expected(name: str, kind: str, x: torch.Tensor, w: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    h = x @ w
    if name == "choice_of_steps":
        h = 0.001 * h
        return {"mean": h - h.mean(-1, keepdim=True), "softmax": h.softmax(-1), "none": h}[kind]
    v, g, r = others
    h, other = (x * g) @ w, (x * g) @ v
    both = torch.nn.functional.gelu(r.exp() * h) + other
    return {"both": both, "one": h, "other": other, "none": r.clone()}[kind]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """A list with as many elements as matmuls have been computed since."""
    from triton.runtime.interpreter import InterpreterBuilder

    found: list[None] = []
    runtime_module("interpreter").mend_dots()  # Which the first launch would do, over what counts.
    dot = InterpreterBuilder.create_dot
    monkeypatch.setattr(
        InterpreterBuilder, "create_dot", lambda *args, **named: (found.append(None), dot(*args, **named))[1]
    )
    return found


def compare(name: str, kind: str, function: Callable[..., torch.Tensor]) -> None:
    """Values and gradients in float64."""
    ours, theirs = ([one.requires_grad_() for one in drawn(name)] for _ in range(2))
    if name == "choice_of_matmul":  # Which has no gradient by the scale.
        ours[3].requires_grad_(False)
        theirs[3].requires_grad_(False)
    got, wanted = function(*ours, kind=kind), expected(name, kind, *theirs)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    given = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(DEVICE)
    leaves = [[one for one in each if one.requires_grad] for each in (ours, theirs)]
    found, want = (
        torch.autograd.grad(y, each, given, allow_unused=True) for y, each in zip((got, wanted), leaves, strict=True)
    )
    zeros = [torch.zeros_like(one) if known is None else known for one, known in zip(leaves[1], want, strict=True)]
    torch.testing.assert_close(list(found), zeros, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("registered", [False, True], ids=["plain", "registered"])
@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name, kinds in KINDS.items() for kind in kinds])
def test_values(name: str, kind: str, registered: bool, modules: dict[str, Any]) -> None:
    full = f"registered_{name}" if registered else name
    compare(name, kind, getattr(modules[full], full))


@pytest.mark.parametrize("kind", KINDS["choice_of_matmul"])
@pytest.mark.parametrize("kernel", ["split_k", "tma", "stream_k"])
def test_values_of_other_kernels(
    kind: str, kernel: str, modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = modules["choice_of_matmul"]
    matmul_heuristics = runtime_of(module, "matmul_heuristics")
    if kernel == "split_k":
        monkeypatch.setattr(matmul_heuristics, "choose_split_k", lambda *_: 2)
    elif DEVICE == "cuda":
        pytest.skip("tiles that TMA copies hold half precision, not the float64 of this test")
    else:
        monkeypatch.setattr(matmul_heuristics, "use_tma", lambda *_: True)
        split = kernel == "stream_k"
        monkeypatch.setattr(
            matmul_heuristics, "choose_stream_k", lambda tiles, *_: (1, 2, tiles - 1, 3) if split else (0, 0, 0, 0)
        )
    compare("choice_of_matmul", kind, module.choice_of_matmul)


@pytest.mark.skipif(DEVICE == "cuda", reason="counts what the interpreter computes")
@pytest.mark.parametrize(
    ("kind", "forward", "backward"), [("both", 2, 4), ("one", 1, 2), ("other", 1, 2), ("none", 0, 0)]
)
def test_only_what_is_chosen_is_multiplied(
    kind: str, forward: int, backward: int, modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one tile and block a matmul each: those of the forward, and two gradients of each."""
    x, w, v, g, r = (one.requires_grad_() for one in drawn("choice_of_matmul", torch.float32))
    multiplied = counted(monkeypatch)
    configs = importlib.import_module(f"{modules['choice_of_matmul'].__name__}.configs")
    for table in (found for name, found in vars(configs).items() if name.startswith("STRIDED")):
        one = max(table.single, key=lambda config: config.kwargs["BLOCK_K"] * config.kwargs["BLOCK_M"])
        one = type(one)(one.kwargs | {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}, num_warps=4)
        monkeypatch.setattr(table, "choose", lambda *_, one=one: one)
    y = modules["choice_of_matmul"].choice_of_matmul(x, w, v, g.detach(), r, kind=kind)
    assert len(multiplied) == forward
    y.sum().backward()
    assert len(multiplied) == forward + backward


def test_only_what_is_chosen_is_saved(modules: dict[str, Any]) -> None:
    """The matmul that a gelu follows, the rows of a softmax."""
    sizes = {}
    for name, kinds in KINDS.items():
        for kind in kinds:
            leaves = [one.requires_grad_() for one in drawn(name)]
            y = getattr(modules[name], name)(*leaves, kind=kind)
            given = {one.data_ptr() for one in leaves}
            saved = [one for one in y.grad_fn.saved_tensors if one is not None and one.data_ptr() not in given]
            sizes[kind if name == "choice_of_steps" else f"matmul {kind}"] = [tuple(one.shape) for one in saved]
    assert sizes["matmul both"] == [(18, 20)]
    assert not sizes["matmul one"] + sizes["matmul other"] + sizes["matmul none"]
    assert sizes["softmax"][0] == (18, 20)
    assert len(sizes["softmax"]) == 3
    assert not sizes["mean"] + sizes["none"]


def test_what_a_registered_operator_does_not_save_is_one_element(modules: dict[str, Any]) -> None:
    """A tensor, as torch's schemas ask for, of no memory of its own."""
    assert modules["registered_choice_of_matmul"].registered_choice_of_matmul  # It is registered when it is first used.
    x, w, v, g, r = drawn("choice_of_matmul")
    for kind, elements in (("both", 18 * 20), ("one", 1), ("other", 1), ("none", 1)):
        _, h = torch.ops.tritongen_choices.registered_choice_of_matmul(x, w, v, g, r, kind, True)
        assert h.shape == (18, 20)
        assert h.untyped_storage().nbytes() == elements * 8
        arguments = (*(one.requires_grad_() for one in drawn("choice_of_matmul")), kind, True)
        torch.library.opcheck(torch.ops.tritongen_choices.registered_choice_of_matmul.default, arguments)


@pytest.mark.parametrize("kind", ["row", "column", "none"])
def test_a_step_that_is_not_chosen_is_not_launched(
    kind: str, modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is anything refused where there is nothing to take the greatest of, and the result is as empty."""
    module = modules["row_or_column"]
    launch = runtime_of(module, "launch")
    monkeypatch.setattr(launch, "lookup", lambda *_: (None, None))  # No launch is repeated.
    launched: list[str] = []
    run = launch.launched
    monkeypatch.setattr(
        launch, "launched", lambda kernel, *args: launched.append(kernel.__name__) or run(kernel, *args)
    )
    x, w = drawn("row_or_column")
    h = x @ w
    wanted = {"row": h - h.amax(-1, keepdim=True), "column": h / (1 + h.abs().amax(0)), "none": h}[kind]
    torch.testing.assert_close(module.row_or_column(x, w, kind=kind), wanted)
    assert len(launched) == {"row": 2, "column": 3, "none": 2}[kind]
    x, w = torch.ones(0, 5, device=DEVICE), torch.ones(5, 3, device=DEVICE)
    assert module.row_or_column(x, w, kind=kind).shape == (0, 3)


@pytest.mark.parametrize("batch", [(), (2,)], ids=["single", "batch"])
@pytest.mark.parametrize("by_tma", [False, True], ids=["strided", "tma"])
@pytest.mark.parametrize("kind", ["both", "none"])
def test_what_a_matmul_that_is_not_chosen_reads_may_not_be_there(
    kind: str, by_tma: bool, batch: tuple[int, ...], modules: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of its matrices, of which kernels are told no strides, nor what the backward would read of them."""
    module = modules["matmul_of_steps"]
    monkeypatch.setattr(runtime_of(module, "matmul_heuristics"), "use_tma", lambda *_: by_tma)
    generator = torch.Generator().manual_seed(0)
    shapes = (18, 33), (20, 33), (20, 24), (18, 24)
    given = [torch.randn(*batch, *shape, generator=generator, dtype=torch.float64).to(DEVICE) for shape in shapes]
    ours, theirs = ([one.clone().requires_grad_() for one in given] for _ in range(2))
    q, k, v, r = theirs
    s = q @ k.mT
    e, w = s / (1 + s.abs().amax(-2, keepdim=True)), v / (1 + v.abs().amax(-2, keepdim=True))
    wanted = e @ w if kind == "both" else r
    got = module.matmul_of_steps(*ours, kind=kind)
    torch.testing.assert_close(got, wanted, rtol=1e-10, atol=1e-10)
    found = torch.autograd.grad(got.square().sum(), [ours[0], ours[2]])
    want = torch.autograd.grad(wanted.square().sum(), [q, v], allow_unused=True)
    zeros = [torch.zeros_like(one) if known is None else known for one, known in zip((q, v), want, strict=True)]
    torch.testing.assert_close([*found], zeros, rtol=1e-9, atol=1e-9)


BESIDE = """
[op]
name = "beside"
summary = "Of a row, a column and a matrix beside a matmul, and running sums of a row or a matrix."

[types]
T = "float"

[inputs]
x = "T[M]"
z = "T[N]"
t = "T[M, N]"
a = "T[M, K]"
b = "T[N, K]"

[params]
kind = { choices = ["row", "column", "matrix"], default = "row" }

[compute]
v = "sum(a * b, K) + 0.5 * t"
y = "exp(x if kind == 'row' else z if kind == 'column' else t)"
u = "cumsum(z if kind == 'row' else t, N)"
s = "sum(v * v if kind == 'matrix' else x, M)"

[outputs]
v = "a"
y = "a[M, N]"
u = "a[M, N]"
s = "a"

[grad]
wrt = ["x", "z", "t", "a", "b"]
"""


@pytest.mark.parametrize("kind", ["row", "column", "matrix"])
def test_what_is_chosen_beside_a_matmul_may_be_smaller_than_a_tile(kind: str, tmp_path: Path) -> None:
    """Rows were stored in one column of a tile, and sums over rows read what only other results were loaded for."""
    operator = built(read_spec("beside.toml", BESIDE), tmp_path).beside
    generator = torch.Generator().manual_seed(0)
    shapes = ((18,), (150,), (18, 150), (18, 33), (150, 33))
    given = [torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE) for shape in shapes]

    def formula(
        x: torch.Tensor, z: torch.Tensor, t: torch.Tensor, a: torch.Tensor, b: torch.Tensor
    ) -> list[torch.Tensor]:
        y = {"row": x[:, None].expand_as(t), "column": z.expand_as(t), "matrix": t}[kind].exp()
        v, u = a @ b.T + 0.5 * t, (z.expand_as(t) if kind == "row" else t).cumsum(1)
        return [v, y, u, (v * v if kind == "matrix" else x[:, None].expand_as(t)).sum(0)]

    leaves = [[one.clone().requires_grad_() for one in given] for _ in range(2)]
    results = [list(operator(*leaves[0], kind=kind)), formula(*leaves[1])]
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-10)
    grads = [torch.randn(one.shape, generator=generator, dtype=torch.float64).to(DEVICE) for one in results[1]]
    found, wanted = (
        torch.autograd.grad(out, by, grads, materialize_grads=True) for out, by in zip(results, leaves, strict=True)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


IN_GROUPS = """
[op]
name = "in_groups"
summary = "Sums of groups of a matmul's columns, or of a row."

[types]
T = "float"

[inputs]
x = "T[M]"
a = "T[M, K]"
b = "T[H, D=16, K]"

[params]
flag = true

[compute]
h = "sum(a * b, K)"
y = "sum(h * h if flag else x, D)"

[outputs]
h = "a[M, H, D]"
y = "a[M, H]"
"""


@pytest.mark.parametrize("flag", [True, False])
def test_a_row_that_is_chosen_is_summed_in_groups_of_columns(flag: bool, tmp_path: Path) -> None:
    operator = built(read_spec("in_groups.toml", IN_GROUPS), tmp_path).in_groups
    generator = torch.Generator().manual_seed(0)
    shapes = ((18,), (18, 33), (5, 16, 33))
    x, a, b = (torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE) for shape in shapes)
    h = torch.einsum("mk,hdk->mhd", a, b)
    wanted = (h, (h * h if flag else x[:, None, None].expand_as(h)).sum(-1))
    torch.testing.assert_close(operator(x, a, b, flag=flag), wanted, rtol=1e-10, atol=1e-10)
