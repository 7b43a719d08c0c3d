"""What tests/harness/planted_bugs.py plants in a small operator, and that its tests are what catches it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.emitted_code import Mutation
from tests.harness.mutations import KINDS, mutations
from tests.harness.oracles import DEVICE
from tests.harness.planted_bugs import ENVIRONMENT, Found, Mutant, Outcome, Tree, candidates, needs_gpu, sampled, table

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _scale_kernel(x_ptr, y_ptr, n_rows, n_cols, stride_x0, stride_xn, COMPUTE: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK_N], COMPUTE)
    for start in range(0, n_cols, BLOCK_N):
        cols = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + row * stride_x0 + cols * stride_xn, mask=cols < n_cols, other=0.0).to(COMPUTE)
        total += 0.5 * x
    y = tl.sum(total, axis=0)
    tl.store(y_ptr + row, y, mask=row < n_rows)


def scale(x: torch.Tensor) -> torch.Tensor:
    y = x.new_empty(len(x))
    grid = (len(x),)
    if torch.cuda.is_available():
        assert x.is_cuda or x.is_cpu
    _scale_kernel[grid](x, y, len(x), x.shape[1], x.stride(0), x.stride(1), tl.float32, 4)
    return y


class _Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
"""
TESTS = """
import torch

from . import kernel


def test_scale():
    x = torch.arange(12.0).view(2, 6)
    torch.testing.assert_close(kernel.scale(x), 0.5 * x.sum(1))


def test_none_of_it():
    assert kernel.__name__
"""


def found(kind: str) -> list[tuple[str, str, str]]:
    """What of a kind can be planted: the mistake, and the first line that differs."""
    return [(one.what, *one.shown(KERNEL)[1:]) for one in mutations(KERNEL) if one.kind == kind]


def test_each_edit_parses() -> None:
    every = mutations(KERNEL)
    assert {one.kind for one in every} == {*KINDS}
    for one in every:
        ast.parse(one.applied(KERNEL))
        assert one.applied(KERNEL) != KERNEL


def test_masks() -> None:
    store = "tl.store(y_ptr + row, y, mask=row < n_rows)"
    assert found("mask") == [
        ("no mask", store, "tl.store(y_ptr + row, y)"),
        ("one too many", store, store.replace("<", "<=")),
    ]
    assert [what for what, _, _ in found("load mask")] == ["no mask", "one too many"]


def test_strides() -> None:
    changed = [new for _, _, new in found("stride") if new.startswith("x = tl.load")]
    assert [new[len("x = tl.load(") : new.index(", mask")] for new in changed] == [
        "x_ptr + cols * stride_xn",
        "(x_ptr + row * stride_x0)",
        "x_ptr + row * stride_xn + cols * stride_xn",
        "x_ptr + row * stride_x0 + cols * stride_x0",
    ]


def test_bounds() -> None:
    assert [new for _, _, new in found("bound")] == [
        "for start in range(0 + BLOCK_N, n_cols, BLOCK_N):",
        "for start in range(0, n_cols - BLOCK_N, BLOCK_N):",
    ]


def test_constants() -> None:
    assert [what for what, _, _ in found("constant")] == ["begins at 1", "another other", "1 % more"]


def test_grid_and_gradient() -> None:
    assert found("grid") == [("one short", "grid = (len(x),)", "grid = (len(x) - 1,)")]
    assert [new for _, _, new in found("gradient")] == ["ctx.save_for_backward(weight, x)"]


def whats(text: str) -> set[str]:
    """The mistakes that can be planted in a text."""
    return {one.what for one in mutations(text)}


def test_nothing_equivalent() -> None:
    """What would change nothing that a call shows is not planted."""
    kernel = "@triton.jit\ndef _copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):\n"
    # What is written before it is read may begin as anything.
    assert not mutations(f"{kernel}    y = tl.zeros([BLOCK], tl.float32)\n    y = x_ptr\n")
    # A running mean begins at the first number, whatever it was, and a sum of squares does not.
    sums = "".join(f"    {name} = tl.zeros([BLOCK], COMPUTE)\n" for name in ("mean", "squares"))
    begun = mutations(f"{kernel}{sums}    mean, squares = welford(mean, squares, n)\n")
    assert [one.lines for one in begun if one.what == "begins at 1"] == [(4, 4)]
    # In place of an infinity that is subtracted any number serves.
    assert "1 for 0" not in whats(f'{kernel}    shift = tl.where(n == float("inf"), 0.0, n)\n')
    # What no reduction reads may be anything outside of the mask, and what is rounded once may be so in any dtype.
    once = KERNEL.replace("        total += 0.5 * x\n", "").replace("tl.sum(total, axis=0)", "x")
    assert not whats(once.replace("total = tl.zeros([BLOCK_N], COMPUTE)", "pass")) & {"a cast", "another other"}
    masked = KERNEL.replace("total += 0.5 * x", "total = merge(total, x, a_mask)").replace("tl.sum(total, axis=0)", "0")
    assert "another other" not in whats(masked)
    assert "another other" in whats(masked.replace("x, a_mask)", "x)"))
    # Two numbers that are cast promote one another, and one by itself is not promoted.
    casts = f"{kernel}    x = x_ptr.to(COMPUTE)\n    y = y_ptr.to(COMPUTE)\n    z = x * y\n    z = tl.exp(z)\n"
    assert "a cast" not in whats(casts)
    assert "a cast" in whats(casts.replace("x * y", "x * x"))
    # What a configuration is chosen by does not change what is computed.
    assert whats("def choose(x, y):\n    return x and y\n") == {"or for and"}
    assert not mutations("def choose(x, y):\n    return configs.choose_tile(x and y)\n")
    # Partial sums are one run of elements, whatever the shape that they were made with.
    host = "def launch(n_rows, n_cols):\n    y_partial = torch.empty((n_rows, n_cols))\n"
    assert not mutations(host)
    assert mutations(host.replace("y_partial", "y"))


HEAD = "@triton.jit\ndef {}_kernel(x_ptr, y_ptr, n_rows, n_cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):\n"


def test_masks_that_hold_for_all() -> None:
    """A combine kernel has no row past the last, and a group of a power of two no tail."""
    every = {"no mask", "one too many", "a condition dropped", "another other"}

    def planted(name: str, body: str) -> list[str]:
        return sorted(one.what for one in mutations(HEAD.format(name) + body) if one.what in every)

    store = "    row_mask = rows < n_rows\n    tl.store(y_ptr, y, mask=row_mask)\n"
    load = "    tile_mask = row_mask & (cols < n_cols)\n    x = tl.load(x_ptr, mask=tile_mask, other=0.0)\n"
    assert planted("f", store) == ["no mask", "one too many"]
    assert planted("_combine", store) == []
    assert planted("f", load) == ["a condition dropped", "a condition dropped", "no mask", "one too many"]
    assert planted("_combine", load) == ["a condition dropped", "no mask", "one too many"]
    group = (
        "    inner_mask = inner < (group + 1) * {}\n"
        "    a = tl.load(x_ptr, mask=row_mask & inner_mask[None, :], other=0.0)\n    y = tl.dot(a, b)\n"
    )
    assert planted("f", group.format(96)) == [
        "a condition dropped",
        "a condition dropped",
        "another other",
        "no mask",
        "one too many",
    ]
    assert planted("f", group.format(128)) == ["a condition dropped", "no mask"]
    assert "rounded down" in whats(HEAD.format("f") + "    steps = tl.cdiv(96, BLOCK_N)\n")
    assert "rounded down" not in whats(HEAD.format("f") + "    steps = tl.cdiv(128, BLOCK_N)\n")


def test_what_a_load_reaches() -> None:
    """A reduction sees what is outside of a mask where the name still stands for it, also through the end of a loop."""
    load = "        x = tl.load(x_ptr, mask=mask, other=0.0)\n"
    once = f"    for n in range(n_cols):\n{load}        y += tl.sum(x)\n"
    later = f"    for n in range(n_cols):\n{load}        tl.store(y_ptr, x)\n"
    carried = f"    for n in range(n_cols):\n        y += tl.sum(before)\n{load}        before = x\n"
    replaced = (
        f"    for n in range(n_cols):\n        before = n\n        y += tl.sum(before)\n{load}        before = x\n"
    )

    def others(body: str) -> int:
        return [one.what for one in mutations(HEAD.format("f") + body)].count("another other")

    assert [others(body) for body in (once, later, once + later, carried, replaced)] == [1, 0, 1, 1, 0]
    # Of values with positions, the positions outside do not lead, as the values there do not.
    pairs = "    best = tl.load(x_ptr, mask=mask, other=0.0)\n    at = tl.load(y_ptr, mask=mask, other=0)\n"
    assert others(f"{pairs}    best, at = argmax(best, at)\n") == 1
    # A loop that waits reads once more what is outside.
    wait = "    words = tl.load(x_ptr, mask=mask, other=1)\n"
    assert others(f"{wait}    total = tl.sum(words)\n") == 1
    loop = f"{wait}    while tl.max(words, axis=0) == 0:\n    {wait}"
    found = [one for one in mutations(HEAD.format("f") + loop) if one.what == "another other"]
    assert [one.gpu for one in found] == ["programs that wait for one another"]


def test_casts_that_do_not_show() -> None:
    """Of what is only compared, and of what meets a number that was cast."""
    cast = "    x = tl.load(x_ptr).to(COMPUTE)\n"
    assert "a cast" in whats(f"{HEAD.format('f')}{cast}    y = tl.exp(x) * 2\n")
    assert "a cast" not in whats(
        f"{HEAD.format('f')}{cast}    y, at = argmax_update(y, at, tl.where(mask, x, lowest(COMPUTE)), cols)\n"
    )
    assert "a cast" not in whats(
        f"{HEAD.format('f')}    y = tl.exp(n).to(COMPUTE)\n    z = tl.load(x_ptr).to(COMPUTE) * y\n"
    )
    assert "a cast" in whats(
        f"{HEAD.format('f')}    y = tl.load(y_ptr)\n    z = tl.exp(tl.load(x_ptr).to(COMPUTE) * y)\n"
    )
    # The largest of absolute values is no less than 0.
    largest = '    y = tl.full([BLOCK_N], float("-inf"), COMPUTE)\n    y = maximum(y, {})\n'
    assert "begins at 0" in whats(HEAD.format("f") + largest.format("x"))
    assert "begins at 0" not in whats(HEAD.format("f") + largest.format("tl.abs(x)"))


def test_waiting_needs_a_gpu() -> None:
    """The interpreter runs one program after another, so that none waits."""
    text = "@triton.jit\ndef _hear(word):\n    while tl.max(word, axis=0) == 0:\n        word = word + 1\n"
    assert {one.gpu for one in mutations(text) if "while" in one.shown(text)[1]} == {
        "programs that wait for one another"
    }


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tree]:
    home = tmp_path_factory.mktemp("planted") / "generated"
    folder = home / "scale"
    folder.mkdir(parents=True)
    for name, text in {"__init__.py": "", "kernel.py": KERNEL, "test_scale.py": TESTS}.items():
        (folder / name).write_text(text)
    (home / "__init__.py").write_text("")
    with pytest.MonkeyPatch.context() as patch:  # Other tests here may want a GPU.
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        yield Tree(home)


@pytest.mark.sampled(4)
@pytest.mark.skipif(DEVICE == "cuda", reason="interprets kernels")
def test_a_bug_is_caught(tree: Tree) -> None:
    baseline = tree.run("scale", {}, trace=True)
    assert not baseline.failed
    every = candidates(tree, "scale", baseline.executed)

    def pick(kind: str, what: str) -> Mutant:
        return next(one for one in every if (one.mutation.kind, one.mutation.what) == (kind, what))

    def run(mutant: Mutant) -> Outcome:
        return tree.run("scale", {mutant.path: mutant.mutation.applied(mutant.text)}, mutant.tests)

    caught, survivor = pick("bound", "a block short"), pick("mask", "no mask")
    assert [test.split("::")[1] for test in caught.tests] == ["test_scale"]
    outcomes = {one: Found(run(one).failed) for one in (caught, survivor)}
    assert [one.test for one in outcomes.values()] == ["test_scale", ""]
    assert "kernel.py:16, _scale_kernel" in str(survivor)
    assert table(outcomes).splitlines()[-1].split() == ["all", "2", "1", "0", "1", "1"]
    # Not reached by the tests: on a CPU the one cannot be, the other is a hole in them.
    assert [needs_gpu(pick(*one)) for one in (("operator", "and for or"), ("gradient", "two swapped"))] == [
        "torch.cuda.is_available()",
        "",
    ]


def test_samples_are_even(tree: Tree) -> None:
    def mutant(kind: str, op: str, function: str) -> Mutant:
        return Mutant(op, Path("kernel.py"), "", Mutation(kind, "", function, (1, 1), 0, 0, ""), frozenset())

    many = [mutant("mask", "gelu", f"f{n}") for n in range(9)]
    few = [mutant("stride", "gelu", "f0"), mutant("mask", "softmax", "f0")]
    chosen = sampled([*many, *few], 3, seed=0)
    assert sorted((one.mutation.kind, one.op) for one in chosen) == [
        ("mask", "gelu"),
        ("mask", "softmax"),
        ("stride", "gelu"),
    ]
    assert chosen == sampled([*many, *few], 3, seed=0)
