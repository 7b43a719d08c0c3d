"""The content of a spec file after its structure is checked and before its math is typed.

These dataclasses are the one model of a spec: `tritongen.spec.read` fills them from TOML and
`tritongen.spec.schema` describes them to editors. Nothing here has positions in the
file: a `Mistake` names the key and the offset, and `tritongen.diagnostics.report` finds the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPUTED = ("float32", "float64")  # the dtypes in which kernels compute and store per-row values
# Read only: kernels compute with them in float32, and any other float takes precedence in promotion.
FLOAT8S = ("float8_e4m3fn", "float8_e5m2")
INTS = ("uint8", "int8", "int16", "int32", "int64")
BOOLS = ("bool",)
# The least and the largest value of each dtype.
RANGES = {"bool": (0, 1), "uint8": (0, 255)}
RANGES |= {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}


# A dtype class of the language and the dtypes it admits, in the order in which tests run them.
DTYPE_CLASSES: dict[str, tuple[str, ...]] = {
    "float": FLOATS,
    "int": INTS,
    "bool": BOOLS,
    "number": FLOATS + INTS,
    "any": FLOATS + INTS + BOOLS,
    "float8": FLOAT8S,
}

# Precision of float32 matmuls: ieee, rounded to tf32, or split into 3 or 6 matmuls of tf32 or bfloat16 terms.
SPLIT_PRECISIONS = ("bf16x3", "bf16x6")  # each matrix is split into a sum of bfloat16 terms
PRECISIONS = ("ieee", "tf32", "tf32x3", *SPLIT_PRECISIONS)

# Where a gradient is written: by the backward; by the forward, into new tensors; by the forward, over the inputs.
WRITES = ("backward", "forward", "in_place")

# The pseudo-axis of any number of leading axes.
BATCH = "..."

ParamValue = float | int | bool | str


@dataclass(frozen=True, slots=True)
class AxisTerm:
    """One dimension of a tensor: an axis `N`, one of fixed size `C=3`, or a group `(H=2 D)`.

    A group is one dimension of the tensor: its length is the product of its axes' lengths, and the
    last axis varies fastest (einops' rule).
    """

    names: tuple[str, ...]
    sizes: tuple[int | None, ...]


@dataclass(frozen=True)
class TensorType:
    """`float[..., N]`: which dtypes a tensor may have, and its axes.

    `variable` names a shared type (`T`): all tensors of this type must have the same dtype.
    """

    dtypes: tuple[str, ...]
    shape: tuple[AxisTerm, ...]
    variable: str = ""

    @cached_property
    def axes(self) -> tuple[str, ...]:
        return tuple(name for term in self.shape for name in term.names)

    @property
    def is_plain(self) -> bool:
        """Whether there are no groups: each dimension is one axis, or `...`."""
        return all(len(term.names) == 1 for term in self.shape)

    @property
    def joins_bools(self) -> bool:
        """Whether the dtype may be bool, and may be another one."""
        return "bool" in self.dtypes and len(self.dtypes) > 1

    @property
    def may_be_float(self) -> bool:
        return any("float" in dtype for dtype in self.dtypes)


def have_same_dtype(types: Sequence[TensorType]) -> bool:
    """Whether tensors always have the same dtype."""
    kinds = {one.variable or one.dtypes for one in types}
    return len(kinds) == 1 and (len(types) == 1 or bool(types[0].variable) or len(types[0].dtypes) == 1)


def of_types(inputs: Iterable[Input]) -> dict[str, str]:
    """Maps each shared type to the first required input of this type, or the first optional one if there is none."""
    own = sorted(inputs, key=lambda tensor: tensor.default is not None)
    return {tensor.type.variable: tensor.name for tensor in reversed(own) if tensor.type.variable}


def plain_shape(axes: tuple[str, ...]) -> tuple[AxisTerm, ...]:
    """One dimension for each axis."""
    return tuple(AxisTerm((axis,), (None,)) for axis in axes)


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument. With a `default` it is optional: None stands for this constant everywhere. A gradient that
    steps read `vanishes` if it may be 0 in elements that were not selected, as by a `where`.
    """

    name: str
    type: TensorType
    default: float | int | bool | None = None
    vanishes: bool = False


def default_shape(inputs: Iterable[Input], axes: tuple[str, ...]) -> tuple[AxisTerm, ...]:
    """The dimensions of the first input with these axes in this order, otherwise one for each axis."""
    return next((tensor.type.shape for tensor in inputs if tensor.type.axes == axes), plain_shape(axes))


def inference_order(inputs: tuple[Input, ...], fixed: Iterable[str] = ()) -> list[Input]:
    """The inputs in an order in which their shapes determine lengths: a group after all of its lengths but one, where
    `fixed` lengths are known. If other inputs determine this one, too, they come first, so that the host does not
    divide by a length that may be 0.

    Inputs with undetermined groups are left out; optional ones come last, since they determine nothing.
    """
    constant = _constant(inputs, fixed)
    known = {*constant}
    left = [tensor for tensor in inputs if tensor.default is None]
    order: list[Input] = []
    while ready := [t for t in left if all(len(set(term.names) - known) <= 1 for term in t.type.shape)]:
        wanted = _divided(ready[0], known, constant)
        order.append(next((one for one in ready if _alone(one) & wanted), ready[0]))
        left.remove(order[-1])
        known |= set(order[-1].type.axes)
    return [*order, *(tensor for tensor in inputs if tensor.default is not None)]


def _constant(inputs: Iterable[Input], fixed: Iterable[str]) -> set[str]:
    terms = [term for tensor in inputs for term in tensor.type.shape]
    return {*fixed, *(n for term in terms for n, size in zip(term.names, term.sizes, strict=True) if size is not None)}


def _divided(tensor: Input, known: Set[str], constant: Set[str]) -> set[str]:
    """The axes whose length is a group's length over its other lengths, if some of these are not constant."""
    axes = set[str]()
    for names in (set(term.names) for term in tensor.type.shape if len(term.names) > 1):
        rest = names - known
        axes |= rest if names - constant - rest else set()
    return axes


def _alone(tensor: Input) -> set[str]:
    """The axes of a tensor that are in no group."""
    return {axis for term in tensor.type.shape if len(term.names) == 1 for axis in term.names}


def divided(inputs: tuple[Input, ...], fixed: Iterable[str], by: Input) -> set[str]:
    """The axes whose lengths only groups determine, as quotients by lengths that may be 0, and that the input `by` has
    outside of groups.
    """
    constant = _constant(inputs, fixed)
    known, found = {*constant}, set[str]()
    for tensor in (one for one in inference_order(inputs, fixed) if one.default is None):
        found |= _divided(tensor, known, constant)
        known |= {*tensor.type.axes}
    return found & _alone(by)


def undetermined_axes(inputs: tuple[Input, ...], fixed: Iterable[str] = ()) -> set[str]:
    """The axes of groups whose lengths neither `fixed` nor the shapes of required inputs determine."""
    ordered = (tensor for tensor in inference_order(inputs, fixed) if tensor.default is None)
    known = {*fixed}.union(*(tensor.type.axes for tensor in ordered))
    groups = [term for tensor in inputs for term in tensor.type.shape if len(term.names) > 1]
    left = [{n for n, size in zip(term.names, term.sizes, strict=True) if size is None} - known for term in groups]
    return set().union(*(names for names in left if len(names) > 1))


@dataclass(frozen=True, slots=True)
class Param:
    """A keyword argument: a number, a flag, or one of its `choices`."""

    name: str
    kind: str  # "float", "int", "bool" or "enum"
    default: ParamValue | None = None  # None: the caller must pass it
    choices: tuple[str, ...] = ()
    minimum: float | int | None = None
    maximum: float | int | None = None

    @property
    def annotation(self) -> str:
        """Its type in Python."""
        return "str" if self.kind == "enum" else self.kind


@dataclass(frozen=True, slots=True)
class Statement:
    """One line of `[compute]`, `name = "expression"`, or of `[axes]`, where `name` is an axis."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Output:
    """A result. `dtype` is "auto" (torch's promotion), the name of an input, or a dtype.

    `shape` is None where the order of the axes follows the inputs.
    """

    name: str
    dtype: str = "auto"
    shape: tuple[AxisTerm, ...] | None = None


@dataclass(frozen=True, slots=True)
class Grad:
    wrt: tuple[str, ...] = ()
    save: tuple[str, ...] | None = None
    write: str = "backward"  # one of WRITES


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tiles and warps. Empty tuples leave the choice to the family's measured defaults.

    Without `fuse`, each line of the math is computed by a step of its own.
    """

    block_m: tuple[int, ...] = ()
    block_n: tuple[int, ...] = ()
    block_k: tuple[int, ...] = ()
    num_warps: tuple[int, ...] = ()
    num_stages: tuple[int, ...] = ()
    autotune: bool = False
    fuse: bool = True


@dataclass(frozen=True, slots=True)
class Range:
    """The range of an input's values in emitted tests or benchmarks; a bound may be an axis, meaning its length."""

    low: float | int | str
    high: float | int | str


@dataclass(frozen=True, slots=True)
class Peer:
    """A torch expression that the benchmark also measures, over the inputs, the params, and the names in `given`.

    `given` are torch expressions that are computed once, before anything is measured. `function` is the path of a
    function of another package, which the expression calls by its last name.
    """

    name: str
    torch: str
    given: tuple[tuple[str, str], ...] = ()
    compiled: bool = False  # whether by torch.compile
    function: str = ""


@dataclass(frozen=True, slots=True)
class Original:
    """The code that a spec reimplements: a torch expression that calls functions or classes of a module, which may not
    be installed where the emitted tests run.
    """

    module: str
    call: str
    names: tuple[str, ...] = ()  # the names that it imports from the module


@dataclass(frozen=True, slots=True)
class Spec:
    """A spec. `path` is as the user named it, with forward slashes."""

    path: str
    name: str
    inputs: tuple[Input, ...]
    compute: tuple[Statement, ...]
    outputs: tuple[Output, ...]
    summary: str = ""
    params: tuple[Param, ...] = ()
    computed: tuple[Statement, ...] = ()  # of [axes]: the formula of each length, in the order of the spec
    grad: Grad | None = None
    reference: str = ""  # a torch expression, or "" where the math itself is the oracle
    original: Original | None = None  # of a reference that imports functions
    register: str = "none"  # how torch.library knows it: "none", "triton_op" or "custom_op"
    namespace: str = "tritongen"  # torch.ops.<namespace>.<name>
    schedule: Schedule = Schedule()
    precision: str = "ieee"  # of matmuls of float32, one of PRECISIONS
    deterministic: bool = True  # whether the same inputs give the same bits
    ranges: tuple[tuple[str, Range], ...] = ()  # of [test]: the ranges of inputs' values
    smallest: tuple[tuple[str, int], ...] = ()  # of [test]: the smallest lengths of axes
    peers: tuple[Peer, ...] = ()  # of [bench]
    lengths: tuple[tuple[str, tuple[int, ...]], ...] = ()  # of [bench]: one or several lengths of each axis
    drawn: tuple[tuple[str, Range], ...] = ()  # of [bench]: the ranges of inputs' values
