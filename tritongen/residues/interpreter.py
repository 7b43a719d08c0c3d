"""Triton's interpreter with elements of the field for floats of every dtype.

Kernels are unchanged: a handle of a float dtype holds elements, and pointers to floats step by their eight bytes.
Computing with the bits of a float raises `Unjudged`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter
from triton.tools.tensor_descriptor import TensorDescriptor

from . import field
from .functions import SAME, TESTS
from .memory import Memory

Handle = interpreter.TensorHandle
Put = Callable[..., None]  # sets an attribute of a class or module until the patch ends
BYTES = 8


class Unjudged(Exception):
    """An operation of a kernel that has no meaning over the field."""


class OutOfBounds(Exception):
    """An access outside of the tensors of a launch."""


def is_float(dtype: Any) -> bool:
    return bool(dtype.scalar.is_floating())


def is_half(dtype: Any) -> bool:
    return dtype.scalar in (tl.float16, tl.bfloat16)


def _element(handle: Any) -> Any:
    return handle.get_element_ty()


@contextmanager
def interpreted(memory: Memory) -> Iterator[None]:
    """Have launched kernels compute over the field, with the elements of tensors in `memory`."""
    with pytest.MonkeyPatch.context() as patches:
        put = functools.partial(patches.setattr, raising=False)  # Releases of Triton differ in these attributes.
        for patch in (_patch_scalars, _patch_arithmetic, _patch_reductions, _patch_functions):
            patch(put)
        allowed = _Allowed(memory)
        _patch_arguments(put, memory, allowed)
        _patch_accesses(put, allowed)
        yield


def _constant(dtype: Any) -> Callable[..., Any]:
    return lambda _, value: Handle(field.embed(np.array([float(value)])), dtype)


ROUNDED = field.hashed("rounded")


def _as_float(given: Any, to: Any) -> Any:
    """Cast between float dtypes, which keeps the element, and marks what is rounded to half precision: it may be stored
    or enter a matmul, but a cast back, to compute with it, hashes it.
    """
    data = given.data
    if is_half(to):
        return Handle(data if is_half(given.dtype) else np.where(field.is_number(data), data | field.HALF, data), to)
    marked = data & field.HALF != 0
    return Handle(np.where(marked, ROUNDED(data), data) if marked.any() else data, to)


# Defined once, since `fast_interpreter` has `get_fp32` in the keys of its cached scalars.
_CONSTANTS = {
    f"get_{name}": _constant(dtype)
    for name, dtype in (("fp16", tl.float16), ("bf16", tl.bfloat16), ("fp32", tl.float32), ("fp64", tl.float64))
}


def _patch_scalars(put: Put) -> None:
    """Constants and conversions."""
    builder, np_dtype = interpreter.InterpreterBuilder, interpreter._get_np_dtype

    def get_np_dtype(dtype: Any) -> Any:
        own = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        is_pointer = isinstance(own, tl.pointer_type)
        return np.dtype(np.uint64) if not is_pointer and own.is_floating() else np_dtype(dtype)

    put(interpreter, "_get_np_dtype", get_np_dtype)
    put(interpreter, "_validate_np_data_size", lambda *_: True)
    for name, constant in _CONSTANTS.items():
        put(builder, name, constant)

    cast = builder.cast_impl

    def cast_impl(self: Any, given: Any, dtype: Any) -> Any:
        to, data = dtype.scalar, given.data
        if is_float(given.dtype):
            if is_float(to):
                return _as_float(given, to)
            return Handle(field.integers(data).astype(np_dtype(to)), to)
        return Handle(field.embed(data), to) if is_float(to) else cast(self, given, dtype)

    put(builder, "cast_impl", cast_impl)
    put(builder, "create_fp_to_fp", lambda self, given, dtype, _: cast_impl(self, given, dtype))

    bitcast, bits = builder.create_bitcast, Bits()

    def create_bitcast(self: Any, given: Any, dtype: Any) -> Any:
        to = dtype.scalar
        before, after = is_float(_element(given)), is_float(getattr(to, "element_ty", to))
        if before == after:
            return Handle(given.data, to) if before else bitcast(self, given, dtype)
        if to.primitive_bitwidth != 32 or isinstance(to, tl.pointer_type):
            raise Unjudged("the bits of a float")
        if before:
            return Handle(bits.of(given.data).astype(np_dtype(to)), to)
        return Handle(bits.elements(given.data), to)

    put(builder, "create_bitcast", create_bitcast)


FILLS = (0, 1, 2**32 - 2, 2**32 - 1)  # words that masked lanes may hold, which become NaN


class Bits:
    """Words of 32 bits for elements: kernels may move them, compare them with 0, and bitcast them back to floats."""

    def __init__(self) -> None:
        self.given: list[field.Elements] = []
        self.known: dict[int, int] = {}

    def of(self, data: field.Elements) -> Any:
        self.given.append(np.unique(data))
        return _words(data)

    def elements(self, words: Any) -> field.Elements:
        """The elements of words that `of` returned. Raises `Unjudged` for words that a kernel computed."""
        for data in self.given:
            self.known |= zip(_words(data).tolist(), data.tolist(), strict=True)
        self.given.clear()
        self.known |= dict.fromkeys(FILLS, int(field.NAN))
        wanted = words.astype(np.uint32).reshape(-1).tolist()
        if not self.known.keys() >= {*wanted}:
            raise Unjudged("the bits of a float")
        return np.array([self.known[word] for word in wanted], np.uint64).reshape(words.shape)


def _words(data: field.Elements) -> Any:
    words = field.mixed(data, np.uint64(32)) & np.uint64(0x7FFFFFFF)
    return (words | (field.key(data) < 0).astype(np.uint64) << np.uint64(31)).astype(np.uint32)


# Methods of the interpreter's builder for floats, and their counterparts over the field.
FLOAT_FUNCTIONS: dict[str, Any] = {
    **{f"create_f{name}": getattr(field, name) for name in ("add", "sub", "mul", "div", "neg")},
    **{f"create_{name}": getattr(field, name) for name in ("fma", "exp", "exp2", "log", "log2", "sqrt", "rsqrt")},
    **{f"create_{name}": field.hashed(name) for name in ("sin", "cos", "erf", "floor", "ceil")},
    "create_precise_divf": field.div,
    "create_approx_divf": field.div,
    "create_frem": field.hashed("fmod"),
    "create_minimumf": field.minimum,
    "create_minnumf": field.minimum,
    "create_maximumf": field.maximum,
    "create_maxnumf": field.maximum,
    "create_fabs": field.absolute,
    "create_precise_sqrt": field.sqrt,
}


# Methods that round their result to the dtype; the others (min, max, neg, abs, floor, ceil) are exact.
ROUNDING = FLOAT_FUNCTIONS.keys() - {
    f"create_{name}" for name in "minimumf minnumf maximumf maxnumf fneg fabs floor ceil".split()
}


def _patch_arithmetic(put: Put) -> None:
    builder = interpreter.InterpreterBuilder

    def over(name: str, function: Any, result: Any = None) -> None:
        old = getattr(builder, name, None)
        if old is None:
            return

        def create(self: Any, *handles: Any) -> Any:
            if not is_float(handles[0].dtype):
                return old(self, *handles)
            data = function(*(one.data for one in handles))
            if name in ROUNDING and any(is_half(one.dtype) for one in handles):
                data = ROUNDED(data)
            elif name in ("create_fneg", "create_floor", "create_ceil"):
                data = data | handles[0].data & field.HALF
            return Handle(data, result or handles[-1].dtype.scalar)

        put(builder, name, create)

    for name, function in FLOAT_FUNCTIONS.items():
        over(name, function)
    for order in "OU":
        for name in ("LT", "LE", "GT", "GE", "EQ", "NE"):
            over(f"create_fcmp{order}{name}", TESTS[name.lower()], tl.int1)

    def create_clampf(_: Any, arg: Any, low: Any, high: Any, __: Any) -> Any:
        return Handle(field.minimum(field.maximum(arg.data, low.data), high.data), arg.dtype.scalar)

    put(builder, "create_clampf", create_clampf)
    dot = builder.create_dot

    def create_dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        if not is_float(a.dtype):
            return dot(self, a, b, d, *rest)
        return Handle(field.add(field.matmul(a.data, b.data), d.data), d.dtype.scalar)

    put(builder, "create_dot", create_dot)

    def create_dot_scaled(*_: Any) -> Any:
        raise Unjudged("tl.dot_scaled")

    put(builder, "create_dot_scaled", create_dot_scaled)


def _patch_reductions(put: Put) -> None:
    reductions, scans = interpreter.ReduceOps, interpreter.ScanOps
    old_sum, old_extreme = reductions.sum, reductions.min_max

    def sum_(self: Any, given: Any) -> Any:
        if not is_float(given.dtype):
            return old_sum(self, given)
        total = field.total(given.handle.data, self.axis, self.keep_dims)
        return self.to_tensor(ROUNDED(total) if is_half(given.dtype) else total, given.dtype)

    def min_max(self: Any, given: Any, val_reduce_op: Any, idx_reduce_op: Any = None) -> Any:
        one = given[0] if isinstance(given, tuple) else given
        if not is_float(one.dtype):
            return old_extreme(self, given, val_reduce_op, idx_reduce_op)
        data, largest = one.handle.data, "max" in val_reduce_op.__name__
        value = self.to_tensor(field.extreme(data, self.axis, largest, self.keep_dims), one.dtype)
        if idx_reduce_op is None:
            return value
        place = idx_reduce_op(field.key(data), axis=self.axis, keepdims=self.keep_dims)
        return value, self.to_tensor(place, tl.int32)

    old_cumsum = scans.cumsum

    def cumsum(self: Any, given: Any) -> Any:
        if not is_float(given.dtype):
            return old_cumsum(self, given)
        return [self.to_tensor(field.running(given.handle.data, self.axis), given.dtype)]

    def generic_scan(self: Any, given: Any) -> list[Any]:
        """Scan sequentially along the axis by `combine_fn`."""
        values = [one.handle.data for one in given]
        length = values[0].shape[self.axis]

        def at(place: int) -> tuple[Any, ...]:
            own = [value.take([place], self.axis) for value in values]
            return tuple(self.to_tensor(one, other.dtype) for one, other in zip(own, given, strict=True))

        found = [at(0)]
        for place in range(1, length):
            combined = self.combine_fn.fn(*found[-1], *at(place))
            found.append(combined if isinstance(combined, tuple) else (combined,))
        columns = zip(*found, strict=True)
        joined = [np.concatenate([one.handle.data for one in column], self.axis) for column in columns]
        return [self.to_tensor(one, other.dtype) for one, other in zip(joined, given, strict=True)]

    put(reductions, "sum", sum_)
    put(reductions, "min_max", min_max)
    put(scans, "cumsum", cumsum)
    put(scans, "cumprod", lambda self, given: generic_scan(self, (given,)))
    put(scans, "generic_scan", generic_scan)


def _patch_functions(put: Put) -> None:
    """Replace device functions of the runtime that approximate a function by that function over the field."""
    old = interpreter.InterpretedFunction.__call__

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        name, module = self.fn.__name__, self.fn.__module__
        if name == "to_float8":
            return args[0].to(args[1])
        if name == "as_stored":  # It rounds so that both passes read one value; elements are not rounded.
            return args[0]
        is_known = name in SAME and module.rpartition(".")[2] in ("math", "special")
        if not is_known or not any(isinstance(one, tl.tensor) and is_float(one.dtype) for one in args):
            return old(self, *args, **kwargs)
        dtypes = [one.dtype for one in args if isinstance(one, tl.tensor) and is_float(one.dtype)]
        data = np.asarray(SAME[name](*map(_elements, args)))
        shape = list(data.shape)
        kind = tl.block_type(dtypes[0], shape) if any(_is_block(one) for one in args) else dtypes[0]
        return tl.tensor(Handle(data, dtypes[0]), kind)

    put(interpreter.InterpretedFunction, "__call__", call)


def _is_block(given: Any) -> bool:
    return isinstance(given, tl.tensor) and bool(given.type.is_block())


def _elements(given: Any) -> field.Elements:
    """The elements of an argument of a device function, which is a tensor or a scalar."""
    value = getattr(given, "value", given)
    if not isinstance(value, tl.tensor):
        return field.embed(value)
    data = value.handle.data
    return np.asarray(data if is_float(value.dtype) else field.embed(data), np.uint64)


class _Allowed:
    """The address ranges that the running kernel may access: the tensors and descriptors of its launch."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.spans: list[tuple[int, int]] = []

    def begin(self, args: Any, kwargs: Any) -> Any:
        self.spans.clear()
        return args, kwargs

    def add(self, tensor: Any, shape: Any, strides: Any) -> int:
        """Allow the range of a tensor with this shape and strides; the address of its first element."""
        is_float = self.memory.is_float(tensor)
        address, size = self.memory.address(tensor) if is_float else (tensor.data_ptr(), tensor.itemsize)
        last = sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if 0 not in shape else -1
        self.spans.append((address, address + (last + 1) * size))
        return address

    def check(self, pointers: Any, mask: Any) -> None:
        mask = getattr(mask, "data", mask)
        outside = pointers.data[np.asarray(mask, bool)] if np.shape(mask) else pointers.data
        for start, end in self.spans:
            outside = outside[(outside < start) | (outside >= end)]
        if outside.size:
            raise OutOfBounds("an access outside of the tensors")


def _patch_arguments(put: Put, memory: Memory, allowed: _Allowed) -> None:
    """Point the tensors and descriptors of a launch to the elements in `memory`, and allow their ranges."""
    convert = interpreter._implicit_cvt
    materialize = interpreter.TensorDescHandle.materialize_pointers

    def described(arg: Any) -> Any:
        """A descriptor. If its first stride is the distance between tensors, they are copied into one array."""
        found = convert(arg)
        base, (step, *steps) = arg.base, arg.strides
        if not memory.is_float(base) or memory.is_inside(base, (arg.shape[0] - 1) * step):
            allowed.add(base, arg.shape, arg.strides)
            return found
        joined = np.stack([memory.at(base, place * step, arg.shape[1:], steps) for place in range(arg.shape[0])])
        memory.joined.append(joined)
        found.handle.base.data = np.array([joined.ctypes.data], np.uint64)
        found.handle.strides = [Handle(np.array([one // BYTES]), tl.int64) for one in joined.strides]
        allowed.spans.append((joined.ctypes.data, joined.ctypes.data + joined.nbytes))
        return found

    def implicit_cvt(arg: Any) -> Any:
        if isinstance(arg, TensorDescriptor):
            return described(arg)
        if not hasattr(arg, "data_ptr"):
            return convert(arg)
        found = convert(arg)
        address = allowed.add(arg, arg.shape, arg.stride())
        if memory.is_float(arg) and not arg.is_floating_point():
            kind = tl.pointer_type({1: tl.float8e5, 2: tl.float16, 4: tl.float32, 8: tl.float64}[arg.itemsize])
            return tl.tensor(Handle(np.array([address], np.uint64), kind), kind)
        found.handle.data = np.array([address], np.uint64)
        return found

    def materialize_pointers(self: Any, offsets: Any) -> Any:
        """The pointers of a block of a descriptor, with strides of elements of eight bytes."""
        dtype = self.base.dtype.element_ty
        if not is_float(dtype):
            return materialize(self, offsets)
        wide, times = copy.copy(self), 8 * BYTES // dtype.primitive_bitwidth
        wide.strides = [Handle(one.data * times, tl.int64) for one in self.strides]
        return materialize(wide, offsets)

    put(interpreter.GridExecutor, "_init_args_hst", allowed.begin)
    put(interpreter.GridExecutor, "_restore_args_dev", lambda *_: None)
    put(interpreter, "_implicit_cvt", implicit_cvt)
    put(interpreter.TensorDescHandle, "materialize_pointers", materialize_pointers)


def _patch_accesses(put: Put, allowed: _Allowed) -> None:
    """Have pointers to floats step by elements, and check that loads, stores and atomics are in bounds."""
    builder = interpreter.InterpreterBuilder
    addptr, load, store = builder.create_addptr, builder.create_masked_load, builder.create_masked_store
    rmw = builder.create_atomic_rmw

    def create_addptr(self: Any, pointer: Any, offset: Any) -> Any:
        if not is_float(_element(pointer)):
            return addptr(self, pointer, offset)
        return Handle(pointer.data + np.uint64(BYTES) * offset.data.astype(np.uint64), pointer.dtype)

    def create_masked_load(self: Any, pointers: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        allowed.check(pointers, mask)
        # Masked lanes without `other` become NaN, since they may be anything; not in blocks of one lane, for which
        # Triton's interpreter does not pass an `other` of 0.
        if not named and rest[0] is None and pointers.data.size > 1 and is_float(_element(pointers)):
            rest = Handle(np.full(pointers.data.shape, field.NAN), _element(pointers)), *rest[1:]
        return load(self, pointers, mask, *rest, **named)

    def create_masked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed.check(pointers, mask)
        if is_float(value.dtype):
            value = Handle(value.data & ~field.HALF, value.dtype)
        return store(self, pointers, value, mask, *rest)

    def create_atomic_rmw(self: Any, how: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        allowed.check(pointers, mask)
        if not is_float(value.dtype):
            return rmw(self, how, pointers, value, mask, *rest)
        if "FADD" not in str(how):
            raise Unjudged(f"an atomic {how} of floats")
        return _added(pointers, value, mask)

    put(builder, "create_addptr", create_addptr)
    put(builder, "create_masked_load", create_masked_load)
    put(builder, "create_masked_store", create_masked_store)
    put(builder, "create_atomic_rmw", create_atomic_rmw)


def _added(pointers: Any, value: Any, mask: Any) -> Any:
    """Atomic add of one element after another, since several may have one address; the elements before."""
    shape = pointers.data.shape
    places, values, masks = (np.broadcast_to(one.data, shape).reshape(-1) for one in (pointers, value, mask))
    before = np.zeros(places.size, np.uint64)
    for n in np.flatnonzero(masks):
        one = slice(n, n + 1)
        before[one] = interpreter._interpreter.load(places[one], np.ones(1, bool), before[one], np.dtype(np.uint64))
        interpreter._interpreter.store(places[one], field.add(before[one], values[one]), np.ones(1, bool))
    return Handle(before.reshape(shape), value.dtype.scalar)
