"""`--check`: compares the emitted operator with the original on random inputs, forward and backward."""

from __future__ import annotations

import atexit
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..diagnostics.report import Mistakes
from ..lang.typecheck import typecheck
from ..operator.compile import generate
from ..project.runtime import RUNTIME_FOLDERS, runtime_files
from ..project.tree import write
from ..spec.read import read_spec
from .axes import Axes
from .building import hint
from .formulas import Applied, Expr, Formula, Symbol, exact_quotient, replaced, solved, symbols_of, value
from .limits import limits
from .partial import Partial
from .rounding import rounded_dtypes
from .run import Result
from .swapping import swapped
from .targets import module_at
from .tracing import call, flat_results
from .values import dtype_name
from .writing import Imported

_ODD = (5, 3, 7, 9, 11, 13, 17, 19)
_BUDGET = 1 << 12  # of elements along all axes together, in Triton's interpreter
_SHORT = 16  # no length is made shorter than this
_EXAMPLE = "lengths of the example"
_EXACT = 1e-7  # torch itself has derivatives in float64 with constants in float32


@dataclass(frozen=True, slots=True)
class Case:
    """Lengths and params with which both operators are called."""

    what: str
    lengths: Mapping[int, int]
    params: Mapping[str, float | int]
    shapes: Mapping[str, Sequence[int]]  # of the original's arguments


Errors = tuple[float, float]  # the largest differences from the original in float64, of results and of gradients


def check_regions(found: Partial, make: Callable[[Result], Callable[..., Any]] | None = None) -> tuple[list[str], bool]:
    """`check` for the Python that calls the operators of regions."""
    axes, sizes = Axes(), {one.name: list(one.tensor.shape) for one in found.trace.arguments}
    dims = {
        name: tuple(axes.new(hint(size), fixed=not _is_open(size)) for size in shape) for name, shape in sizes.items()
    }
    made = Imported(
        "\n".join(one.imported.text for one in found.regions),
        found.name,
        tuple(sizes),
        {},
        tuple(one.name for one in found.trace.arguments if one.wants_gradient),
        axes=axes,
        dims=dims,
        free=frozenset(axis for own in dims.values() for (axis,) in filter(None, own) if not axes[axis].fixed),
    )

    def module(result: Result) -> Callable[..., Any]:
        regions = [Result(one.imported, result.target, one.trace) for one in found.regions]
        operators = {one.imported.name: (make or emitted)(one) for one in regions}
        text = re.sub(r"^from generated import .*$", "", found.source, flags=re.MULTILINE)
        exec(compile(text, f"{found.name}.py", "exec"), operators)

        def called(*tensors: Any) -> Any:
            with _Unrounded():  # type: ignore[no-untyped-call]
                return operators[found.name](*tensors)

        return called

    return check(Result(made, found.target, found.trace), module, [one.imported for one in found.regions])


def check(
    result: Result,
    make: Callable[[Result], Callable[..., Any]] | None = None,
    specs: Sequence[Imported] = (),
) -> tuple[list[str], bool]:
    """A table of errors, and whether all are small, of the operator that `make` builds: by default, the emitted one."""
    try:
        operator = (make or emitted)(result)
    except Mistakes as mistakes:
        return [f"error: {one.message}; {one.hint}" for one in mistakes.mistakes], False
    rows = [f"{'':34}{'results':>10}{'original':>10}{'gradients':>11}{'original':>10}"]
    is_right = True
    ops = (typecheck(read_spec(one.name, one.text)) for one in specs or [result.imported])
    rounded = frozenset[str]().union(*map(rounded_dtypes, ops))
    exact = max([_EXACT, *(8 * _rounding(dtype) for dtype in rounded)])
    cases = list(_cases(result))
    longest = max(map(result.imported.axes.length, ((axis,) for axis in cases[0].lengths)), default=0)
    if cases[0].what != _EXAMPLE:
        rows.insert(0, f"without a GPU, kernels are interpreted: at {cases[0].what} in place of {longest}")
    compared = 0
    for case in cases:
        try:
            for dtype, errors, own in _compared(result, operator, case):
                limit = exact if own is None else max(exact, 3 * own[0] + 4 * _rounding(dtype))
                steep = exact if own is None else max(exact, 3 * own[1] + 16 * _rounding(dtype))
                good = errors[0] <= limit and not errors[1] > steep
                is_right, compared = is_right and good, compared + 1
                rows.append(_row(f"{case.what} {dtype}", errors, own, good))
        except _Skipped as error:
            rows.append(f"{case.what:34} {error}")
        except Exception as error:
            rows.append(f"{case.what:34} the operator raises {type(error).__name__}: {str(error)[:120]}")
            is_right = False
    if not compared:
        rows.append("nothing was compared")
    return rows, is_right and compared > 0


def _row(what: str, errors: Errors, own: Errors | None, good: bool) -> str:
    cells = [errors[0], own and own[0], errors[1], own and own[1]]
    shown = ["" if one is None or one != one else f"{one:.1e}" for one in cells]
    return f"{what:34}{shown[0]:>10}{shown[1]:>10}{shown[2]:>11}{shown[3]:>10}{'' if good else '  too large'}"


class _Skipped(Exception):
    """The original raises at these lengths or in the example's dtype."""


def emitted(result: Result) -> Callable[..., Any]:
    """The operator generated from the spec, for a GPU or interpreted. Raises `Mistakes`."""
    spec = read_spec(result.imported.name, result.imported.text)
    files = {f"{inside}/{name}": text for inside in RUNTIME_FOLDERS for name, text in runtime_files(inside).items()}
    files |= generate(spec, ".")
    folder = Path(tempfile.mkdtemp(prefix="tritongen_import_"), f"{spec.name}_operator")
    atexit.register(shutil.rmtree, folder.parent, ignore_errors=True)  # Kernels are read from there until then.
    for name, text in files.items():
        write(str(folder / name), text)
    package = module_at(f"{folder.parent.name}_{folder.name}", str(folder / "__init__.py"), [str(folder)])
    function: Callable[..., Any] = getattr(package, spec.name)
    return function


def prepare() -> None:
    """Makes Triton interpret kernels if there is no GPU. Call it before the trace, in which torch imports Triton."""
    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"


def _cases(result: Result) -> Iterator[Case]:
    made, lengths = result.imported, _Lengths(result)
    example = _taken(result, lengths, lengths.short() if _device() == "cpu" else lengths.example)
    longest = max(lengths.at(example).values(), default=0)
    what = _EXAMPLE if example == lengths.example else f"lengths up to {longest}"
    yield lengths.case(example, what)
    odd = _taken(result, lengths, lengths.odd(example if "[axes]" in made.text else {}))
    if odd != example:
        yield lengths.case(odd, "odd lengths")
    for name, number in made.params.items():
        yield lengths.case(odd, f"{name} = {_other(number):g}", {name: _other(number)})


def _taken(result: Result, lengths: _Lengths, wanted: Mapping[Symbol, int]) -> Mapping[Symbol, int]:
    """The `wanted` lengths that the original accepts, and the example's for others, as of a table with too few rows."""

    def runs(found: Mapping[Symbol, int]) -> bool:
        return _runs(lambda: _original(result, {})(_widened(_drawn(result, lengths.case(found)))))

    if wanted == lengths.example or runs(wanted):
        return wanted
    own = [one for one in wanted if runs({**lengths.example, one: wanted[one]})]
    found = {**lengths.example, **{one: wanted[one] for one in own}}
    return found if runs(found) else lengths.example


class _Lengths:
    """Lengths that both operators accept: a formula for each axis, of symbols of the trace that may have any value."""

    def __init__(self, result: Result) -> None:
        self._made, self._arguments = result.imported, result.trace.arguments
        self._formulas: dict[int, Expr] = {}
        self._known: dict[Symbol, Expr] = {}
        self._hints: dict[Symbol, int] = {}
        for one in self._arguments:
            shape: list[Any] = list(one.tensor.shape)
            self._hints |= next((length.node.shape_env.hints for length in shape if _is_open(length)), {})
            for dim, length in zip(self._made.dims.get(one.name, ()), shape, strict=False):
                free = [axis for axis in dim if axis in self._made.free]
                if len(free) == 1 and _is_open(length):
                    stated = self._made.axes.length(axis for axis in dim if axis not in free)
                    self._equate(self._made.axes.root(free[0]), exact_quotient(length.node.expr, stated))
        self.example = {
            one: self._hints[one]
            for one in sorted(frozenset[Symbol]().union(*map(symbols_of, self._formulas.values())))
        }

    def _equate(self, axis: int, formula: Expr) -> None:
        formula = replaced(formula, self._known)
        found = solved(self._formulas.setdefault(axis, formula), formula)
        if found is not None:
            self._known = {one: replaced(other, dict([found])) for one, other in self._known.items()} | dict([found])
            self._formulas = {one: replaced(other, self._known) for one, other in self._formulas.items()}

    def at(self, symbols: Mapping[Symbol, int]) -> dict[int, int]:
        """The lengths of axes for values of symbols."""
        own = {axis: value(formula, symbols) for axis, formula in self._formulas.items()}
        axes, inputs = self._made.axes, self._made.dims.values()
        return {one: own.get(axes.root(one), axes.length((one,))) for dims in inputs for one in axes.all_atoms(dims)}

    def case(self, symbols: Mapping[Symbol, int], what: str = "", params: Mapping[str, float | int] = {}) -> Case:
        return Case(what, self.at(symbols), params, self.shapes(symbols))

    def shapes(self, symbols: Mapping[Symbol, int]) -> dict[str, list[int]]:
        """The shapes of the original's arguments."""
        lengths, dims = self.at(symbols), self._made.dims
        found = {name: [math.prod(lengths[axis] for axis in dim) for dim in own] for name, own in dims.items()}
        for one in self._arguments:
            if one.name not in found:
                shape: list[Any] = list(one.tensor.shape)
                formulas = [length.node.expr if _is_open(length) else length for length in shape]
                found[one.name] = [value(replaced(one, self._known), {**self._hints, **symbols}) for one in formulas]
        return found

    def _unit(self, symbol: Symbol) -> int:
        """The integer that has to divide a symbolic length, since axes are fractions of it; 1 if none is."""
        found = 1
        for formula in self._formulas.values():
            if isinstance(formula, Formula) and symbol in symbols_of(formula):
                found = math.lcm(found, *(by.denominator for _, by in formula.terms))
                quotients = (atom.args[1] for product, _ in formula.terms for atom, _ in product if _is_quotient(atom))
                found = math.lcm(found, *quotients)
        return found

    def short(self) -> dict[Symbol, int]:
        """The example's lengths, the longest halved until the interpreter takes seconds."""
        found = dict(self.example)
        while math.prod(self.at(found).values()) > _BUDGET:
            longest = max(found, key=found.__getitem__, default=None)
            if longest is None or found[longest] <= _SHORT:
                break
            half, unit = max(_SHORT, found[longest] // 2), self._unit(longest)
            if -(-half // unit) * unit == found[longest]:
                break
            found[longest] = -(-half // unit) * unit
        return found

    def odd(self, least: Mapping[Symbol, int]) -> dict[Symbol, int]:
        """Different lengths, odd where possible: slightly above those in `least`, else small ones."""
        found = {}
        for place, symbol in enumerate(self.example):
            own, unit = least.get(symbol, 0), self._unit(symbol)
            above = own // 2 * 2 + 1 + 2 * (place % (4 if own > 8 else 2))
            found[symbol] = -(-above // unit) * unit if own else _ODD[place % len(_ODD)] * unit
        return found


def _is_open(length: Any) -> bool:
    return not isinstance(length, int)


def _is_quotient(atom: Any) -> bool:
    return isinstance(atom, Applied) and atom.function == "floor_divide" and isinstance(atom.args[1], int)


def _other(value: float | int) -> float | int:
    return value + 1 if isinstance(value, int) else value * 1.5 if value else 0.5


def _compared(result: Result, operator: Callable[..., Any], case: Case) -> Iterator[tuple[str, Errors, Errors | None]]:
    """Yields, for float64 and the example's dtype, the errors of the operator and of the original."""
    own = next((one.tensor.dtype for one in result.trace.arguments if one.tensor.dtype.is_floating_point), None)
    if not all(isinstance(one, int) and one > 0 for one in case.lengths.values()):
        raise _Skipped("the original has no such lengths")
    tensors, wanted, wrt = _sample(result, case)
    wide = _widened(tensors)
    names = [one.name for one in result.trace.arguments]
    places = [names.index(one) for one in result.imported.inputs]

    def function(given: Sequence[Any]) -> Any:
        return operator(*(given[place] for place in places), **case.params)

    with _of_float64():
        exact = _run(result, function, wide, wrt)
    yield "float64", _errors(exact, wanted), None
    if own not in (None, torch.float64) and not case.params:
        try:
            theirs = _run(result, _original(result, case.params, is_exact=False), tensors, wrt)
        except Exception as error:
            raise _Skipped(f"the original raises {type(error).__name__} in {dtype_name(own)}: {error}") from None
        found = _run(result, function, tensors, wrt)
        yield dtype_name(own), _errors(found, wanted), _errors(theirs, wanted)


def _sample(result: Result, case: Case) -> tuple[list[torch.Tensor], Found, Sequence[str]]:
    """Inputs, the original's results, and the inputs with gradients; draws again if results are not finite."""
    found, failure = None, ""
    for is_normal, most in ((True, 3), (False, 3), (False, 1)):
        tensors = _drawn(result, case, is_normal, most)
        try:
            with _of_float64():
                wanted, wrt = _wanted(result, _original(result, case.params), _widened(tensors))
        except Exception as error:
            failure = f"the original raises {type(error).__name__} there"
            continue
        found = tensors, wanted, wrt
        if all(one.isfinite().all() for one in wanted[0] if one.is_floating_point()):
            break
    if found is None:
        raise _Skipped(failure)
    return found


def _drawn(result: Result, case: Case, is_normal: bool = True, count: int = 3) -> list[torch.Tensor]:
    """Random inputs of the original, in the dtypes of the example; integers that are no indices are below `count`."""
    draw = torch.randn if is_normal else torch.rand
    random = torch.Generator().manual_seed(0)
    found = []
    for one in result.trace.arguments:
        shape, dtype = case.shapes[one.name], one.tensor.dtype
        if dtype == torch.bool:
            tensor = torch.rand(shape, generator=random) < 0.7
        elif dtype.is_floating_point:
            tensor = draw(shape, generator=random).to(dtype)
        else:
            axes = result.imported.positions.get(one.name, ())
            high = math.prod(case.lengths[axis] for axis in axes) if axes else count
            tensor = torch.randint(0, max(high, 1), shape, generator=random).to(dtype)
        found.append(tensor.to(_device()))
    return found


def _widened(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.double() if one.is_floating_point() else one for one in tensors]


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


Run = Callable[[Sequence[Any]], Any]


def _original(result: Result, params: Mapping[str, float | int], is_exact: bool = True) -> Run:
    """The original; if `is_exact`, without casts of float64 to narrower floats, and with limits as in the trace."""

    def run(tensors: Sequence[Any]) -> Any:
        scalars = {name: params.get(name, value) for name, value in result.trace.scalars.items()}
        noted = (one for one, _ in result.trace.recording.limits)
        unrounded: Any = _Unrounded() if is_exact else nullcontext()  # type: ignore[no-untyped-call]
        noted_limits = limits(lambda own, _: next(noted, own)) if is_exact else nullcontext()
        with unrounded, noted_limits, _constants(result.target.module, params):
            return call(result.target, result.trace, tuple(tensors), scalars)

    return run


@contextmanager
def _constants(module: Any, params: Mapping[str, float | int]) -> Iterator[None]:
    """Replaces constants of a module, its submodules and the objects that these have, such as a `config`."""
    modules = list(module.modules()) if module is not None else []
    objects = (one for owner in modules for one in vars(owner).values() if hasattr(one, "__dict__"))
    held = {id(one): one for one in objects if not isinstance(one, type | FunctionType | ModuleType)}
    owners = [*modules, *held.values()]
    with ExitStack() as swaps:
        for one in owners:
            own = {name: value for name, value in params.items() if vars(one).get(name) is not None}
            swaps.enter_context(swapped(one, **own))
        yield


@contextmanager
def _of_float64() -> Iterator[None]:
    """Makes float64 the default dtype, for floats that are computed from integers such as positions."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(default)


class _Unrounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Ignores casts of float64 to narrower floats."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and args[0].dtype == torch.float64:
            dtype = kwargs.get("dtype")
            if dtype is not None and dtype.is_floating_point:
                kwargs = kwargs | {"dtype": torch.float64}
        return func(*args, **kwargs)


Found = tuple[list[Any], list[Any]]


def _wanted(result: Result, original: Run, tensors: Sequence[torch.Tensor]) -> tuple[Found, Sequence[str]]:
    """The results and gradients of the original, and the spec's inputs for which torch has a gradient."""
    wrt = result.imported.differentiated
    try:
        return _run(result, original, tensors, wrt), wrt
    except Exception:
        wrt = tuple(one for one in wrt if _runs(_run, result, original, tensors, [one]))
        return _run(result, original, tensors, wrt), wrt


def _runs(function: Callable[..., object], *given: Any) -> bool:
    try:
        function(*given)
    except Exception:
        return False
    return True


def _run(result: Result, function: Run, tensors: Sequence[torch.Tensor], wrt: Sequence[str]) -> Found:
    """The results, and their gradients with respect to the inputs `wrt`."""
    names = [one.name for one in result.trace.arguments]
    leaves = [one.detach().requires_grad_(name in wrt) for name, one in zip(names, tensors, strict=True)]
    _, results = flat_results(function(leaves))
    random = torch.Generator().manual_seed(1)
    seeds = [torch.randn(one.numel(), generator=random, dtype=torch.float64) for one in results]
    smooth = [
        (one, seed.to(one).view(one.shape)) for one, seed in zip(results, seeds, strict=True) if one.requires_grad
    ]
    by = [leaf for leaf in leaves if leaf.requires_grad]
    gradients: Sequence[Any] = ()
    if smooth and by:
        gradients = torch.autograd.grad([one for one, _ in smooth], by, [seed for _, seed in smooth], allow_unused=True)
    return [one.detach() for one in results], list(gradients)


def _errors(found: Found, wanted: Found) -> Errors:
    return (_largest(found[0], wanted[0]), _largest(found[1], wanted[1], may_lack_nan=True))


def _largest(found: Sequence[Any], wanted: Sequence[Any], may_lack_nan: bool = False) -> float:
    """The largest error, over the largest value if above 1. Gradients `may_lack_nan` that torch gets from a `where`."""
    largest = 0.0 if found else math.nan
    for one, other in zip(found, wanted, strict=True):
        if one is None or other is None:
            continue
        one = one.reshape(other.shape) if one.numel() == other.numel() else one
        if one.shape != other.shape:
            return math.inf
        if not other.is_floating_point():
            largest = max(largest, 0.0 if torch.equal(one.to(other.dtype), other) else math.inf)
            continue
        one, other = one.double(), other.double()
        if may_lack_nan:
            one = one.masked_fill(other.isnan(), math.nan)
        if not torch.equal(one.isnan(), other.isnan()):
            return math.inf
        scale = max(1.0, float(other.nan_to_num(0, 0, 0).abs().max())) if other.numel() else 1.0
        gap = torch.where((one == other) | other.isnan(), 0.0, (one - other).abs()).nan_to_num(0.0, math.inf)
        largest = max(largest, float(gap.max()) / scale if gap.numel() else 0.0)
    return largest


def _rounding(dtype: str) -> float:
    return float(torch.finfo(getattr(torch, dtype)).eps)
