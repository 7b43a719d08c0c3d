"""The base of the test classes: an operator's declarations, inputs, oracle, and the comparison of results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import pytest
import torch
from triton import Config

from ..runtime import launch
from .inputs import (
    DEVICE,
    Input,
    Layout,
    backwards,
    contiguous,
    misaligned,
    overlapping,
    same_columns,
    same_rows,
    scattered,
)
from .launches import check_bounds, compile_ahead

Patch = pytest.MonkeyPatch
Shape = tuple[int, ...]
Dtypes = tuple[torch.dtype, ...]

gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")

# Relative and absolute, by the dtype of a result; other dtypes are exact. Half precision is rounded once.
TOLERANCES = {
    torch.float16: 2e-3,
    torch.bfloat16: 1.6e-2,
    torch.float32: 1e-5,
    torch.float64: 1e-10,
}
# Sums lose one more digit than single operations.
SUMS = TOLERANCES | {torch.float32: 1e-4, torch.float64: 1e-9}
FLOATS = tuple(TOLERANCES)


def each(names: str, values: Callable[[Any], Sequence[Any]]) -> Callable[..., Any]:
    """Parametrise a test by values that the class declares; without any, the test is left out."""

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        vars(test).setdefault("cases", []).append((names, values))
        return test

    return mark


def only(holds: Callable[[Any], object]) -> Callable[..., Any]:
    """Restrict a test to the classes for which a condition holds."""

    def mark(test: Callable[..., Any]) -> Callable[..., Any]:
        vars(test)["holds"] = holds
        return test

    return mark


def is_backward(table: str) -> bool:
    """Whether a table is of the backward: named after a gradient, as LOOP_BACKWARD or TMA_DX."""
    return "_" in table


def in_turn(
    cases: Sequence[tuple[Any, ...]], values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    """Pair each case with one of the values, by turns, and the last case, a small tile of a table, with all of
    them.
    """
    last = len(cases) - 1
    return [
        (value, *case)
        for n, case in enumerate(cases)
        for value in (values if n == last else values[n % len(values) :][:1])
    ]


def label(value: object) -> str:
    """The name of a value in a test's id: tiles and warps of a configuration, the name of a function."""
    if isinstance(value, Config):
        return "-".join(map(str, (*value.kwargs.values(), value.num_warps)))
    return str(getattr(value, "__name__", value))


def results(found: Any) -> tuple[torch.Tensor, ...]:
    """The results of a call, always as a tuple."""
    return found if isinstance(found, tuple) else (found,)


def wide(tensors: Iterable[Any]) -> list[Any]:
    """Floats converted to float64, so that an oracle rounds nothing."""
    return [
        one.double() if one is not None and one.is_floating_point() else one
        for one in tensors
    ]


class Harness:
    """The declarations of an operator, from which tests are made."""

    pytestmark: ClassVar[list[pytest.MarkDecorator]] = [
        # Numpy's, in the interpreter, of infinities and NaN, which tests of special values ask for.
        pytest.mark.filterwarnings("ignore::RuntimeWarning"),
        # Torch's, in references, of shapes that its losses broadcast, and of variances of
        # one element, which are NaN.
        pytest.mark.filterwarnings("ignore:Using a target size:UserWarning"),
        pytest.mark.filterwarnings("ignore:var.*degrees of freedom:UserWarning"),
    ]

    op: Callable[..., Any]
    reference: Callable[..., Any]  # what the kernels must compute, in torch
    masked_math: Callable[..., Any] | None = None  # NaN in rows that are masked
    result_dtypes: Callable[..., Dtypes]  # of the results, of the inputs
    tables: ModuleType  # its configs.py
    inputs: ClassVar[tuple[Input, ...]]
    # Those that a shape below has the lengths of; a single element has none, and all shapes are ().
    axes: ClassVar[tuple[str, ...]] = ()
    reduced: ClassVar[tuple[str, ...]] = ()  # of the axes
    sizes: ClassVar[Mapping[str, int]] = {}  # the axes of a fixed length
    # The axes of inputs whose lengths follow from those of others, by which each is given.
    derived: ClassVar[Mapping[str, Callable[[Mapping[str, int]], int]]] = {}
    absent: ClassVar[Sequence[tuple[str, ...]]] = ()  # optional inputs to leave out
    batched: ClassVar[Sequence[int]] = ()  # positions of inputs that are broadcast
    indices: ClassVar[Sequence[str]] = ()  # inputs that are indices into an axis

    params: ClassVar[Mapping[str, Any]] = {}  # for those that have no default
    other_params: ClassVar[Sequence[Mapping[str, Any]]] = ()
    strange_params: ClassVar[Sequence[Mapping[str, Any]]] = ()  # of another type
    bad_params: ClassVar[Sequence[Mapping[str, Any]]] = ()  # out of range

    ragged: ClassVar[Shape] = ()
    shapes: ClassVar[Sequence[Shape]]
    large: ClassVar[Sequence[Shape]]  # for a GPU
    empty: ClassVar[Sequence[Shape]] = ()
    valueless: ClassVar[Sequence[Shape]] = ()  # empty, and refused
    deep: ClassVar[Shape] = ()  # of more dimensions than kernels step through
    two_batches: ClassVar[Shape] = ()
    wide: ClassVar[Shape] = ()  # of several steps of a loop, and several programs
    special: ClassVar[Shape] = ()  # for infinities and NaN
    finite: ClassVar[Sequence[str]] = ()  # inputs that have none of them there
    wrong_shapes: ClassVar[Sequence[tuple[str, Shape]]] = ()  # of an input
    too_long: ClassVar[Shape] = ()  # to be sorted in registers
    far: ClassVar[tuple[str, Shape] | None] = None  # an input to spread out, and axes
    few_keys: ClassVar[Shape] = ()  # fewer than rows
    # Inputs by which a softmax is over nothing: values, and dimensions of them and of the results.
    hiding: ClassVar[Sequence[tuple[str, float, int, int]]] = ()
    splits: ClassVar[Sequence[int]] = ()  # how many programs share a row

    tolerances: ClassVar[Mapping[torch.dtype, float]] = TOLERANCES
    cancels: ClassVar[bool] = False  # whether sums may be far smaller than terms
    expands: ClassVar[bool] = True  # whether equal rows leave more than rounding
    error_factor: ClassVar[float] = 2  # beside the error of torch's own
    shifts: ClassVar[Sequence[float]] = ()  # of values whose exp overflows
    own_range: ClassVar[bool] = False  # whether results tell how far a dtype reaches
    rounds_between: ClassVar[bool] = False  # to the dtype of an input, on the way
    rounds_to_float32: ClassVar[bool] = False  # on the way, in which torch goes on

    # How tests are made

    def __init_subclass__(cls, **options: Any) -> None:
        """Leave out the tests for which an operator declares nothing."""
        super().__init_subclass__(**options)
        if "op" not in vars(cls):
            return
        if cls.rounds_to_float32:
            single = {torch.float64: cls.tolerances[torch.float32]}
            cls.tolerances = {**cls.tolerances, **single}
        for name in dir(cls):
            test = getattr(cls, name)
            cases = getattr(test, "cases", ())
            holds = getattr(test, "holds", lambda _: True)
            if not holds(cls) or not all(values(cls) for _, values in cases):
                setattr(cls, name, None)

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Parametrise a test by what the class declares."""
        for names, values in getattr(metafunc.function, "cases", ()):
            metafunc.parametrize(names, values(metafunc.cls), ids=label)

    @pytest.fixture(autouse=True)
    def own_launches(self, request: pytest.FixtureRequest, patch: Patch) -> None:
        """Clear cached launches, since tests force configurations, which repeated calls would not look up. Kernels may
        access nothing outside of their tensors.
        """
        compile_ahead(request)
        launch.LAUNCHES.clear()
        check_bounds(patch)

    @pytest.fixture
    def patch(self, monkeypatch: Patch) -> Patch:
        """Sets attributes, and restores them after the test."""
        return monkeypatch

    # Inputs

    @classmethod
    def names(cls) -> list[str]:
        return [one.name for one in cls.inputs]

    @classmethod
    def groups(cls) -> dict[str, Dtypes]:
        """The dtypes that a caller may choose for each group or input."""
        found: dict[str, Dtypes] = {}
        for one in cls.inputs:
            if len(one.dtypes) > 1:
                found.setdefault(one.group or one.name, one.dtypes)
        return found

    @classmethod
    def dtypes(cls) -> list[Dtypes]:
        """Dtypes for all groups: each dtype for all that may have it, then mixtures of two."""
        groups = list(cls.groups().values())
        same = [
            tuple(one if one in own else own[n % len(own)] for own in groups)
            for n, one in enumerate(dict.fromkeys(one for own in groups for one in own))
        ]
        mixed = [
            tuple(own[(n + shift % 2) % len(own)] for shift, own in enumerate(groups))
            for n in range(max(map(len, groups), default=0))
        ]
        return [one for one in dict.fromkeys(same + mixed) if cls.can_run(one)]

    @classmethod
    def can_run(cls, dtypes: Dtypes) -> bool:
        """Whether the device supports some dtypes."""
        return True

    @classmethod
    def floats(cls) -> list[Dtypes]:
        """For each float dtype that all groups may have: that dtype for all."""
        return [one for one in map(cls.all_of, FLOATS) if one and cls.can_run(one)]

    @classmethod
    def all_of(cls, dtype: torch.dtype) -> Dtypes:
        """One dtype for all groups; empty if some may not have it."""
        groups = cls.groups().values()
        return (dtype,) * len(groups) if all(dtype in own for own in groups) else ()

    @classmethod
    def mostly(cls, dtype: torch.dtype) -> Dtypes:
        """A dtype for all groups that may have it; signed integers for others, since those may be negative."""
        groups, ranks = cls.groups().values(), {torch.int64: 1, dtype: 2}
        return tuple(max(own, key=lambda one: ranks.get(one, 0)) for own in groups)

    @classmethod
    def gives_one_float(cls) -> bool:
        """Whether there is a single result, of a dtype with rounding errors."""
        inputs = [torch.empty(0, dtype=one.dtypes[0]) for one in cls.inputs]
        found = cls.result_dtypes(*inputs)
        return len(found) == 1 and found[0].is_floating_point and found[0].itemsize > 1

    @classmethod
    def make(
        cls, shape: Shape, dtypes: Dtypes = (), seed: int = 0, ends: bool = True
    ) -> tuple[torch.Tensor, ...]:
        """The inputs for axes of some lengths, in float32 unless dtypes are given.

        With `ends`, the first of bounded integers is the lowest and the last one the highest.
        """
        torch.manual_seed(seed)
        chosen = dtypes or cls.mostly(torch.float32)
        by_group = dict(zip(cls.groups(), chosen, strict=True))
        lengths = cls.lengths(shape)
        return tuple(
            one.draw(lengths, by_group.get(one.group or one.name, one.dtypes[0]), ends)
            for one in cls.inputs
        )

    @classmethod
    def astray(cls) -> list[torch.Tensor]:
        """Inputs in which the first index is below all others, and the last one above."""
        tensors = list(cls.make(cls.ragged))
        for name in cls.indices:
            values = tensors[cls.names().index(name)].view(-1)
            lowest, highest = values.min() - 1, values.max() + 1
            values[0] = lowest
            values[2:3] -= 10**6  # far from all memory
            values[1:][-1:] = highest
        return tensors

    @classmethod
    def shifted(cls, shift: float) -> list[torch.Tensor]:
        """Inputs with a constant added to unbounded floats. Skips math that overflows in torch, too."""
        tensors = [
            tensor + shift if one.is_float and one.low is None else tensor
            for one, tensor in zip(cls.inputs, cls.make(cls.wide), strict=True)
        ]
        if not cls.is_within_range(tensors):
            pytest.skip(
                f"of inputs about {shift} torch overflows, too: bound them under [test]"
            )
        return tensors

    @classmethod
    def is_within_range(cls, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether torch, in the dtypes of the inputs, has no NaN where float64 has none."""
        try:
            own = results(cls.in_torch(*tensors))
        except RuntimeError:  # It has no kernels for the dtypes.
            return True
        pairs = zip(own, results(cls.oracle(*tensors)), strict=True)
        return all(bool((a.cpu().isfinite() | ~b.isfinite()).all()) for a, b in pairs)

    @classmethod
    def lengths(cls, shape: Shape) -> Mapping[str, Sequence[int]]:
        """The lengths of axes; the leading ones have what the others leave."""
        named = [axis for axis in cls.axes if axis != "..."]
        batch = shape[: len(shape) - len(named)]
        own = zip(named, shape[len(batch) :], strict=True)
        found = {**cls.sizes, **dict(own)}
        for axis, length in cls.derived.items():
            found[axis] = length(found)
        return {"...": batch} | {axis: (size,) for axis, size in found.items()}

    @classmethod
    def layout_shapes(cls) -> list[Shape]:
        """Of as many dimensions as kernels have, of fewer, and of more."""
        return list(dict.fromkeys([cls.unfolded(), cls.ragged, cls.deep]))

    @classmethod
    def narrowed_places(cls) -> list[tuple[int, Any]]:
        """Inputs that are broadcast, each with every other way to leave out leading axes or elements of them."""
        places = [0, (0, 0), slice(1), (slice(None), slice(1))]
        return [
            (narrow, place)
            for n, narrow in enumerate(cls.batched)
            for place in places[n % 2 :: 2]
        ]

    @classmethod
    def unfolded(cls) -> Shape:
        """With as many dimensions as kernels have."""
        return cls.deep[1:] if "..." in cls.axes else cls.deep

    @classmethod
    def layouts(cls, *inputs: Input) -> list[Layout]:
        """Layouts to try, other than those constant along a reduced axis, which leave nothing but rounding."""
        most = max(inputs or cls.inputs, key=lambda one: len(one.axes)).axes or ("",)
        expands = {same_rows: most[0], same_columns: most[-1]} if cls.expands else {}
        reduced = {term for term in most if {*term.split(" * ")} & {*cls.reduced}}
        others = [layout for layout, term in expands.items() if term not in reduced]
        return [backwards, scattered, misaligned, overlapping, *others]

    @classmethod
    def without(
        cls, absent: Sequence[str], tensors: Sequence[torch.Tensor]
    ) -> tuple[list[Any], list[torch.Tensor]]:
        """The inputs with None for the absent ones, and with the values that None stands for."""
        given: list[Any] = list(tensors)
        filled = list(tensors)
        for place, one in enumerate(cls.inputs):
            if one.name in absent:
                assert one.default is not None
                given[place] = None
                filled[place] = torch.full_like(tensors[place], one.default)
        return given, filled

    # Values

    @classmethod
    def call(cls, *tensors: Any, **params: Any) -> Any:
        """The operator, with the params that it needs."""
        return cls.op(*tensors, **{**cls.params, **params})

    @classmethod
    def in_torch(cls, *tensors: Any, **params: Any) -> Any:
        """The reference, in the dtypes of the inputs."""
        return cls.reference(*tensors, **{**cls.params, **params})

    @classmethod
    def oracle(cls, *tensors: Any, **params: Any) -> Any:
        """The reference in float64 on the CPU, since some of torch's GPU kernels use float32 constants."""
        return cls.exactly(cls.reference, *tensors, **params)

    @classmethod
    def exactly(cls, function: Callable[..., Any], *tensors: Any, **params: Any) -> Any:
        """A function of floats in float64, with that as torch's dtype for integers."""
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            given = [one.cpu() for one in wide(tensors)]
            return function(*given, **{**cls.params, **params})
        finally:
            torch.set_default_dtype(default)

    @classmethod
    def masked(cls, outgoing: list[torch.Tensor], given: Any) -> list[torch.Tensor]:
        """Incoming gradients, zero in rows that have no part in gradients."""
        return outgoing

    @classmethod
    def expected(
        cls, oracle: Callable[..., Any], *tensors: Any, **params: Any
    ) -> Any | None:
        """The results of an oracle; None if it refuses an axis of length 0 or 1, which an operator may support."""
        try:
            return oracle(*tensors, **params)
        except (RuntimeError, ValueError, IndexError, ArithmeticError):
            sizes = [size for one in tensors if one is not None for size in one.shape]
            if min(sizes, default=2) > 1:
                raise
            return None

    @classmethod
    def scale(cls, want: torch.Tensor) -> float:
        """The scale of an absolute tolerance. Sums that cancel are only as accurate as the largest ones."""
        if not cls.cancels or not want.numel():
            return 1.0
        finite = want.double().nan_to_num(posinf=0.0, neginf=0.0).abs()
        return max(1.0, finite.max().item())

    @classmethod
    def tolerance(cls, dtype: torch.dtype, tensors: Iterable[Any]) -> float:
        """The tolerances of a result for some inputs."""
        return cls.tolerances.get(dtype, 0.0)

    @classmethod
    def compare(
        cls,
        got: Any,
        want: Any,
        tensors: Iterable[Any] = (),
        errors: Sequence[float] = (),
    ) -> None:
        """Equal within the dtypes' tolerance or torch's own `errors`, NaN and infinities in the same places."""
        errors = errors or [0.0 for _ in results(want)]
        for one, other, error in zip(results(got), results(want), errors, strict=True):
            tolerance = cls.tolerance(one.dtype, tensors)
            atol = max(tolerance * cls.scale(other), cls.error_factor * error)
            cls.check_near(one, other, tolerance, atol)

    @classmethod
    def check_near(cls, got: Any, want: Any, rtol: float, atol: float) -> None:
        """Equal within tolerances, NaN and infinities in the same places."""
        torch.testing.assert_close(
            got, want.to(got), rtol=rtol, atol=atol, equal_nan=True
        )

    @classmethod
    def check_accuracy(
        cls, got: torch.Tensor, torchs: torch.Tensor, want: torch.Tensor
    ) -> None:
        """Where the oracle is finite: no error far above torch's own, apart from rounding to the dtype. For
        float64, whose oracle is no more accurate, rounding is the dtype's tolerance.
        """
        finite = want.isfinite()
        if not finite.any():
            return
        largest, error, allowed = (
            float(one[finite].abs().max())
            for one in (want, got.to(want) - want, torchs.to(want) - want)
        )
        is_double = got.dtype == torch.float64
        eps = cls.tolerances[got.dtype] if is_double else 2 * torch.finfo(got.dtype).eps
        report = f"{error} for {allowed} of torch's, of {largest}"
        assert error <= cls.error_factor * allowed + eps * largest, report

    @classmethod
    def errors(cls, *_: Any, **__: Any) -> Sequence[float]:
        """Further absolute errors to allow for each result or gradient, since torch's own results have them."""
        return ()

    @classmethod
    def check(cls, *tensors: Any, **params: Any) -> Any:
        """The operator against the oracle; returns what it computed."""
        got = cls.call(*tensors, **params)
        cls.check_results(got, *tensors, **params)
        return got

    @classmethod
    def check_results(cls, got: Any, *tensors: Any, **params: Any) -> None:
        """What the operator computed of some tensors against the oracle."""
        want = cls.expected(cls.oracle, *tensors, **params)
        if want is not None:
            errors = cls.errors(partial(cls.in_torch, **params), tensors, want)
            cls.compare(got, want, tensors, errors)

    @classmethod
    def check_capture(cls, function: Callable[..., Any]) -> None:
        """A function that is captured as a graph of some inputs, and replayed with others."""
        tensors, others = (cls.make(cls.ragged, seed=seed) for seed in range(2))
        cuda: Any = torch.cuda  # Parts of it have no types.
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            function(*tensors)  # Compiles.
        cuda.current_stream().wait_stream(stream)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            got = function(*tensors)
        for tensor, other in zip(tensors, others, strict=True):
            tensor.copy_(other)
        graph.replay()
        torch.testing.assert_close(got, function(*others), equal_nan=True)

    @classmethod
    def has_gradient(cls) -> bool:
        return hasattr(cls, "check_gradients")

    @classmethod
    def check_pass(
        cls,
        backward: bool | None,
        tensors: Iterable[Any],
        layout: Layout = contiguous,
        arranged: Layout | None = None,
        **params: Any,
    ) -> None:
        """The results or the gradients of tensors with a layout; for None, both where there are some."""
        own: Any = cls  # With gradients it is a BackwardTests, too.
        given, arranged = list(map(layout, tensors)), arranged or layout
        if backward is None and cls.has_gradient():
            own.check_both(*given, arranged=arranged, **params)
        elif backward:
            own.check_gradients(*given, arranged=arranged, **params)
        else:
            cls.check(*given, **params)

    # Configurations

    @classmethod
    def configs(
        cls, kind: type, *others: Config, backward: bool | None = None
    ) -> list[tuple[str, Any]]:
        """The names of tables of a kind, of one pass or both, each with each of its configurations."""
        return [
            (name, config)
            for one in (False, True)
            if backward in (None, one)
            for table, name in cls.tables_of(kind, one).items()
            for config in (*table, *others)
        ]

    @classmethod
    def force(cls, patch: Patch, table: Any, config: Config) -> None:
        """Force launches to take a configuration of a table, whether chosen or tuned."""
        if isinstance(table, str):
            table = getattr(cls.tables, table)
        if hasattr(table, "choose"):
            patch.setattr(table, "choose", lambda *_: config)
        if hasattr(table, "candidates"):
            patch.setattr(table, "candidates", lambda *_: (config,))

    @classmethod
    def force_all(cls, patch: Patch, kind: type, config: Config) -> None:
        """Force launches to take a configuration in every table of a kind, of the forward and the backward."""
        for table in cls.tables_of(kind):
            cls.force(patch, table, config)

    @classmethod
    def tables_of(cls, kind: type, backward: bool | None = None) -> dict[Any, str]:
        """The tables of a kind, of one pass or both, each under one of its names."""
        found: dict[Any, str] = {}
        for name, table in vars(cls.tables).items():
            if type(table) is kind and backward in (None, is_backward(name)):
                found.setdefault(table, name)
        return found

    @classmethod
    def passes(cls, kind: type) -> list[bool]:
        """The passes that have tables of a kind: whether they are the backward."""
        return [one for one in (False, True) if cls.tables_of(kind, one)]
