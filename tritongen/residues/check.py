"""Run the emitted tests of an operator over the field, and compare each configuration that they force bit by bit.

The tests choose kernels and configurations and draw the inputs. Where a test would compare with its reference within a
tolerance, results are compared bit by bit with the Op evaluated over the field.
"""

from __future__ import annotations

import importlib
import itertools
import math
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from ..lang.ir import Result
from ..spec.types import Param
from . import field
from . import interpreter as of_residues
from .formula import Formula, rounds
from .interpreter import ROUNDED, Unjudged, interpreted
from .memory import HostMath, Memory
from .oracle import Math, Unknown, math_of, without_batch

# Skipped tests, which check no formula: special values, refused arguments, dtypes, and torch's transforms of operators.
OTHERS = (
    "special wrong empty deterministic vmap torch_func outside shifted "
    "param_of_another param_out_of half_precision dense deprecated registered own_math "
    "masked rows_without_keys zeros_stay beyond"
).split()


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case of a test: `difference` is "" if all bits agree; `unjudged` says why it was not checked."""

    op: str
    test: str
    difference: str = ""
    unjudged: str = ""


class Different(Exception):
    """Bits that differ."""


def _without_inputs(self: Any, absent: Any) -> None:
    self.check(*self.without(absent, self.make(self.ragged))[0])


def _gradients_without_inputs(self: Any, absent: Any) -> None:
    given, _ = self.without(absent, self.make(self.ragged))
    self.check_gradients(*given, wrt=tuple(name for name in self.wrt if name not in absent))


# Replacements of tests that compare with a call on explicit inputs instead of absent ones: the Op knows the defaults.
INSTEAD: Mapping[str, Callable[..., None]] = {
    "test_optional_inputs": _without_inputs,
    "test_gradients_without_optional_inputs": _gradients_without_inputs,
}


def tests_of(module: ModuleType) -> list[Any]:
    """The test classes of a module: classes with `op` and `inputs` of their own."""
    return [one for one in vars(module).values() if isinstance(one, type) and {"op", "inputs"} <= vars(one).keys()]


def cases_of(cls: Any) -> Iterator[tuple[str, Callable[..., Any], dict[str, Any]]]:
    """Each test of a class (name and function) with the arguments of each of its cases, skipped tests left out."""
    for name in sorted(dir(cls)):
        test = getattr(cls, name)
        if not name.startswith("test_") or test is None or any(word in name for word in OTHERS):
            continue
        if any(mark.name == "skipif" and mark.args[0] for mark in getattr(test, "pytestmark", ())):
            continue
        tables = [(names.split(", "), values(cls)) for names, values in getattr(test, "cases", ())]
        for chosen in itertools.product(*(values for _, values in tables)):
            given: dict[str, Any] = {}
            for (names, _), value in zip(tables, chosen, strict=True):
                given |= zip(names, value if len(names) > 1 else (value,), strict=True)
            yield name, INSTEAD.get(name, test), given


def verdicts(
    name: str, package: str, formula: Formula, wanted: Callable[[str], bool] = lambda _: True
) -> Iterator[Verdict]:
    """The verdict on each `wanted` case of an operator's tests, where it compares, differs or cannot be judged."""
    module = importlib.import_module(f"{package}.{name}.test_{name}")
    for cls in tests_of(module):
        for test, function, given in cases_of(cls):
            shown = f"{test}[{', '.join(f'{key}={_shown(value)}' for key, value in given.items())}]"
            if wanted(shown):
                memory = Memory()
                is_half = bool(zlib.crc32(shown.encode()) % 2)
                difference, unjudged = _outcome(cls, function, given, formula, memory, is_half)
                if difference or unjudged or memory.compared:
                    yield Verdict(name, shown, difference, unjudged)


def _shown(value: Any) -> str:
    return str(getattr(value, "__name__", value))


def _outcome(
    cls: Any, test: Callable[..., Any], given: Mapping[str, Any], formula: Formula, memory: Memory, is_half: bool
) -> tuple[str, str]:
    code, arguments = test.__code__, dict(given)
    runtime = cls.op.__module__.rsplit(".", 2)[0] + "._runtime"
    importlib.import_module(f"{runtime}.launch").LAUNCHES.clear()
    interpreter = importlib.import_module(f"{runtime}.interpreter")
    interpreter.mend()  # A first launch would do it, over the patches made here.
    if hasattr(interpreter, "mend_dots"):
        interpreter.mend_dots()
    with pytest.MonkeyPatch.context() as patch, interpreted(memory):
        if "patch" in code.co_varnames[: code.co_argcount]:
            arguments["patch"] = patch
        if copies := sys.modules.get(f"{runtime}.copies"):
            patch.setattr(copies, "_widest", _one_element)
        _compare_bits(patch, cls, formula, memory)
        patch.setattr(of_residues, "ROUNDED", partial(_rounded, formula))
        if is_half:
            patch.setattr(cls, "make", staticmethod(_of_half(cls)))
        try:
            test(cls(), **arguments)
        except pytest.skip.Exception:
            return "", ""
        except Exception as error:
            cause = _root(error)
            if isinstance(cause, (Unjudged, HostMath, Unknown)):
                return "", str(cause)
            if type(cause) is AssertionError:  # An assertion of the test on float values, which no kernel wrote.
                return "", ""
            return f"{type(cause).__name__}: {cause}", ""
    return "", ""


def _rounded(formula: Formula, data: Any) -> Any:
    """Rounded elements that a kernel computes with: unchanged if the formula rounds, too, else a hash, which differs.

    `rounds` is called only here, because its answer takes a plan.
    """
    return data if rounds(formula) else ROUNDED(data)


def _of_half(cls: Any) -> Callable[..., Any]:
    """`cls.make` with float16 inputs where a test chooses no dtype, so that an unwanted rounding to half shows."""
    make = cls.make

    def of_half(shape: Any, dtypes: Any = (), *rest: Any, **named: Any) -> Any:
        return make(shape, dtypes or cls.mostly(torch.float16), *rest, **named)

    return of_half


def _one_element(tensor: torch.Tensor) -> torch.dtype:
    """The integer dtype in which copies move one element at a time, not several in a word."""
    return {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize]


def _root(error: BaseException) -> BaseException:
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def _compare_bits(patch: pytest.MonkeyPatch, cls: Any, formula: Formula, memory: Memory) -> None:
    """Patch the checks of a test class to compare bit by bit with the Op, or to do nothing for special values."""

    def check(*tensors: Any, **params: Any) -> Any:
        return Run(cls, formula, tensors, params, memory).forward()

    def check_gradients(*tensors: Any, wrt: Any = (), arranged: Any = lambda one: one, **params: Any) -> None:
        Run(cls, formula, tensors, params, memory).backward(wrt, arranged)

    def check_both(*tensors: Any, arranged: Any = lambda one: one, **params: Any) -> None:
        Run(cls, formula, tensors, params, memory).backward((), arranged, both=True)

    own = {
        "check": check,
        "check_gradients": check_gradients,
        "check_both": check_both,
        **dict.fromkeys(("check_special_values", "compare", "compare_gradients"), lambda *_: None),
    }
    for name in own.keys() & {*dir(cls)}:  # Classes without gradients lack their checks.
        patch.setattr(cls, name, staticmethod(own[name]))


class Run:
    """A call of an operator on some tensors, and the comparison of its results or gradients with the Op's."""

    def __init__(
        self, cls: Any, formula: Formula, tensors: Sequence[Any], params: Mapping[str, Any], memory: Memory
    ) -> None:
        self.cls, self.formula, self.tensors = cls, formula, tensors
        usual = {**{param.name: param.default for param in formula.op.params}, **cls.params}
        self.params = {
            param.name: _power(param, params.get(param.name, usual[param.name]), 0 if param.name in params else place)
            for place, param in enumerate(formula.op.params, 1)
        }
        self.arrays = {one.name: _array(tensor) for one, tensor in zip(formula.op.inputs, tensors, strict=True)}
        self.memory = memory
        for tensor in tensors:  # Kernels may reach one by the distance from another.
            if tensor is not None and tensor.is_floating_point():
                memory.storage(tensor)

    def forward(self) -> Any:
        with self.memory:
            got = self.cls.call(*self.tensors, **self.params)
        self._check_results(got if isinstance(got, tuple) else (got,))
        return got

    def _check_results(self, got: Sequence[Any]) -> None:
        run = math_of(self.formula.op, self.arrays, self.params)
        shown = [one for one in self.formula.op.results if not one.saved]
        for result, tensor in zip(shown, got, strict=True):
            if tensor is not None:
                self._compare(result, tensor, run)

    def _compare(self, result: Result, tensor: torch.Tensor, run: Math) -> None:
        self.memory.compared += 1
        name = result.output.name
        got = self.memory.of(tensor) if tensor.is_floating_point() else tensor.numpy()
        want = np.asarray(run.result(name).data)
        if (got.dtype == np.uint64) != (want.dtype == np.uint64):
            want = field.embed(want) if got.dtype == np.uint64 else field.integers(want)
        if want.size != got.size:
            want = _summed_to(want, got.shape, result, run)
        want = want.reshape(got.shape)
        is_same = field.is_equal(got, want) if got.dtype == np.uint64 else np.asarray(got == want)
        if not is_same.all():
            raise Different(f"{name}: {np.count_nonzero(~is_same):,} of {is_same.size:,} elements differ")

    def backward(self, wrt: Sequence[str], arranged: Any, both: bool = False) -> None:
        cls, formula = self.cls, self.formula
        assert formula.gradient is not None
        given = cls.leaves(self.tensors, wrt)
        with self.memory:
            found = cls.call(*cls.handed(given), **self.params)
        results = found if isinstance(found, tuple) else (found,)
        random = torch.Generator().manual_seed(1)
        outgoing = [torch.randn(one.shape, generator=random).bfloat16().to(one) for one in results]
        pairs = zip(results, outgoing, strict=True)
        arrived = [arranged(other) if one.requires_grad else other for one, other in pairs]
        arrays = dict(self.arrays)
        for result, seed in formula.seeds:
            place = [one.output.name for one in formula.op.results].index(result)
            arrays[seed] = _array(arrived[place])
        smooth = [(one, other) for one, other in zip(results, arrived, strict=True) if one.requires_grad]
        by = [given[place] for place in cls.places(wrt)]
        with self.memory:
            gradients = torch.autograd.grad([one for one, _ in smooth], by, [one for _, one in smooth])
        if both:
            self._check_results([one.detach() for one in results])
        needed = {one.name: arrays[one.name] for one in formula.gradient.inputs}
        run = math_of(formula.gradient, needed, self.params, math_of(formula.op, self.arrays, self.params).lengths)
        wanted = dict(zip(formula.wrt, formula.gradient.results, strict=True))
        for name, gradient in zip(wrt or cls.wrt, gradients, strict=True):
            self._compare(wanted[name], gradient, run)


def _power(param: Param, value: Any, more: int) -> Any:
    """The power of two nearest to a float param, within its bounds, so that the host's products with it are exact.

    It is doubled `more` times if the bounds allow, because a default of 1 would hide a kernel that ignores the param.
    """
    if param.kind != "float" or not value:
        return value
    powers = [math.copysign(2.0 ** (round(math.log2(abs(value))) + times), value) for times in (more, 0)]
    low, high = param.minimum, param.maximum
    within = (one for one in powers if (low is None or low <= one) and (high is None or one <= high))
    return next(within, value)


def _summed_to(want: Any, shape: Sequence[int], result: Result, run: Math) -> Any:
    """Sum a gradient over the leading axes that its input lacks or has with length 1, down to `shape`."""
    assert result.output.shape is not None
    inner = len(without_batch(result.output.shape))  # a group counts as one dimension
    expected = want.reshape(*run.leading, *shape[len(shape) - inner :])
    added = len(expected.shape) - len(shape)
    expected = field.total(expected, tuple(range(added)))
    return field.total(expected, tuple(n for n, size in enumerate(shape) if size < expected.shape[n]))


def _array(tensor: torch.Tensor | None) -> Any:
    """A tensor before a call as an array: elements for floats, else a copy of its integers or bools."""
    if tensor is None:
        return None
    plain = tensor.detach()
    if not plain.is_floating_point():
        return np.array(plain.numpy())
    return field.embed(plain.float().numpy())
