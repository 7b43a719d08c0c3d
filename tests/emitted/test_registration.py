"""Operators registered with torch, beside what their emitted tests say: copies, traces and rules."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from pathlib import Path

import pytest

from tests.harness import importing
from tests.harness.oracles import DEVICE
from tests.harness.processes import python
from tritongen.emit.registration import autocast_rule
from tritongen.operator.compile import forward_of, generate
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]


# What operators take besides x.
OTHERS = {"rms_norm": "torch.randn(48)", "gelu": "", "linear": "torch.randn(32, 48)"}


def registered(folder: Path, name: str, register: str, op: str = "") -> str:
    """Writes an operator of the gallery, registered, into a folder; returns what it is called."""
    text = (ROOT / "specs" / f"{name}.toml").read_text(encoding="utf-8")
    op = op or name
    text = text.replace(f'name = "{name}"', f'name = "{op}"', 1)
    spec = read_spec(f"{op}.toml", f'{text}\n[torch]\nregister = "{register}"\nnamespace = "of_tests"\n')
    importing.written(spec, folder)
    return op


def run(folder: Path, program: str, interpret: bool = True) -> str:
    """The output of a program that imports from a folder; kernels are interpreted as here, or never."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    if not interpret:
        environment.pop("TRITON_INTERPRET", None)
    done = python("-c", textwrap.dedent(program), cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.sampled(2)
@pytest.mark.parametrize("register", ["custom_op", "triton_op"])
def test_vendored_copies_stand_side_by_side(register: str, tmp_path: Path) -> None:
    """Two copies of one operator: the later takes its name, and both compute, with gradients."""
    for home in ("one", "other"):
        registered(tmp_path / home, "rms_norm", register)
        (tmp_path / home / "__init__.py").touch()
    program = f"""
        import torch
        import one.rms_norm, other.rms_norm

        torch.manual_seed(0)
        torch.set_default_device("{DEVICE}")
        x, weight = torch.randn(3, 8, requires_grad=True), torch.randn(8, requires_grad=True)
        found = []
        for module in (one.rms_norm, other.rms_norm, one.rms_norm):
            y = module.rms_norm(x, weight)
            found.append((y, *torch.autograd.grad(y.square().sum(), (x, weight))))
        want = torch.nn.functional.rms_norm(x, (8,), weight, 1e-6)
        want = (want, *torch.autograd.grad(want.square().sum(), (x, weight)))
        for got in found:
            torch.testing.assert_close(got, want)
        y, rstd = torch.ops.of_tests.rms_norm(x, weight, 1e-6)
        torch.testing.assert_close(y, want[0])
        print(y.grad_fn is not None, rstd.requires_grad)
    """
    assert run(tmp_path, program) == "True False\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("register", ["custom_op", "triton_op"])
def test_a_gradient_that_launches_nothing(register: str, tmp_path: Path) -> None:
    """That of a sum by one of its terms is the incoming gradient."""
    text = (ROOT / "specs" / "vector_add.toml").read_text(encoding="utf-8").replace(', "other"]', "]")
    importing.written(read_spec("vector_add.toml", f'{text}\n[torch]\nregister = "{register}"\n'), tmp_path)
    program = f"""
        import torch
        from vector_add import vector_add

        x, other, dy = torch.randn(3, 5, device="{DEVICE}")
        y = vector_add(x.requires_grad_(), other)
        torch.testing.assert_close(y, x + other)
        torch.testing.assert_close(torch.autograd.grad(y, x, dy)[0], dy)
        print(torch.func.grad(lambda x: (dy * vector_add(x, other)).sum())(x).equal(dy))
    """
    assert run(tmp_path, program) == "True\n"


@pytest.mark.sampled(2)
def test_nothing_is_registered_before_it_is_used(tmp_path: Path) -> None:
    registered(tmp_path, "rms_norm", "custom_op")
    program = """
        import torch
        import rms_norm

        print(hasattr(torch.ops.of_tests, "rms_norm"))
        rms_norm.rms_norm
        print(hasattr(torch.ops.of_tests, "rms_norm"))
    """
    assert run(tmp_path, program) == "False\nTrue\n"


@pytest.mark.sampled(2)
def test_torch_traces_into_a_triton_op(tmp_path: Path) -> None:
    """Kernels are nodes of the graph, with symbolic lengths too. What runs it launches nothing here."""
    for name in OTHERS:
        registered(tmp_path, name, "triton_op")
    program = f"""
        import importlib
        import torch
        from torch._dynamo.backends.common import aot_autograd

        def keep(graph, _):
            print(*(node.target for node in graph.graph.nodes if node.op == "call_function"))
            return lambda *_: 1 / 0

        others = {{{", ".join(f"'{name}': [{others}]" for name, others in OTHERS.items())}}}
        for name in others:
            for dynamic in (False, True):
                torch._dynamo.reset()
                function = getattr(importlib.import_module(name), name)
                compiled = torch.compile(
                    function, fullgraph=True, dynamic=dynamic, backend=aot_autograd(fw_compiler=keep)
                )
                try:
                    compiled(torch.randn(6, 48), *others[name])
                except ZeroDivisionError:
                    pass
    """
    found = run(tmp_path, program, interpret=False).splitlines()
    assert len(found) == 2 * len(OTHERS)
    assert all("triton_kernel_wrapper_functional" in graph for graph in found)
    assert not any("of_tests" in graph for graph in found)


RULES = {"linear": "lower", "router": "lower", "rms_norm": "float32", "sum": "float32", "kl_div": "float32"}
RULES |= dict.fromkeys(("int8_matmul_dequant", "gelu", "amax", "argmax", "any"), "")


@pytest.mark.parametrize("name", RULES)
def test_autocast_does_what_it_does_to_the_likes_of_torch(name: str) -> None:
    spec = read_spec(name, (ROOT / "specs" / f"{name}.toml").read_text(encoding="utf-8"))
    forward = forward_of(spec)
    assert autocast_rule(forward.program, forward.family.autocast) == RULES[name]


def test_what_is_not_registered_says_nothing_of_torch_library() -> None:
    spec = read_spec("rms_norm.toml", (ROOT / "specs" / "rms_norm.toml").read_text(encoding="utf-8"))
    files = generate(spec)
    assert not any(re.search(r"torch\.library|\blibrary\b", files[name]) for name in ("op.py", "kernels.py"))
