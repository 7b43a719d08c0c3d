"""Patches that make Triton's interpreter faster, with the same results.

Formula checks use it, and tests without a GPU. Most of the time of interpreted kernels goes into repeated work: the
interpreter patches the language again for every call of a device function, recomputes dtypes, shapes, promotion and
broadcasting for every operation, checks integer overflow without reporting it, and reduces element by element.
It also accepts keywords that a kernel does not have; here these fail. All arithmetic is still the interpreter's.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import inspect
from collections.abc import Iterable
from typing import Any, ClassVar

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

MOST_SCALARS = 1000  # scalars that are cached as tensors
# Keywords of a launch that are options of the compiler, not arguments of the kernel.
OPTIONS = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg", "launch_cooperative_grid"})


class Patched:
    """The patches of a launch, which it applies at once and undoes by `restore`."""

    active: ClassVar[list[frozenset[str]]] = []  # for each running launch, the modules that it has patched
    left: ClassVar[set[str]] = set()  # modules patched by calls of device functions, which restore nothing

    def __init__(self, names: frozenset[str], changes: list[tuple[Any, str, Any, Any]]) -> None:
        self.changes = changes
        self.active.append(names)
        for owner, name, _, interpreted in changes:
            setattr(owner, name, interpreted)

    def restore(self) -> None:
        self.left.difference_update(self.active.pop())
        for owner, name, original, _ in reversed(self.changes):
            if original is interpreter._MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def patch_once() -> None:
    """Find what to patch once per set of language modules, and reuse a launch's patches in its device functions."""
    patch = interpreter._patch_lang
    known: dict[frozenset[str], list[tuple[Any, str, Any, Any]]] = {}

    @functools.cache
    def languages(fn: Any) -> frozenset[str]:
        return frozenset(value.__name__ for value in fn.__globals__.values() if value is tl or value is tl.core)

    def patch_launch(fn: Any) -> Any:
        names = languages(fn)
        if Patched.active:  # A nested launch would record the patched members as the originals.
            return patch(fn)
        if names not in known:
            scope = patch(fn)
            known[names] = [(owner, name, first, vars(owner)[name]) for owner, name, first in scope._changes]
            scope.restore()
        return Patched(names, known[names])

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        names = languages(self.fn)
        if not (Patched.active and names <= Patched.active[-1] | Patched.left):
            patch(self.fn)
            Patched.left |= names - Patched.active[-1] if Patched.active else set()
        try:
            return self.rewrite()(*args, **kwargs)
        except Exception as error:
            raise interpreter.InterpreterError(repr(error)) from error

    interpreter._patch_lang = patch_launch
    interpreter.InterpretedFunction.__call__ = call


def refuse_unknown_keywords() -> None:
    """Raise TypeError for keywords that a kernel does not take, as the compiler does; the interpreter drops them."""
    call = interpreter.GridExecutor.__call__

    @functools.cache
    def taken(fn: Any) -> frozenset[str]:
        return OPTIONS | frozenset(inspect.signature(fn).parameters)

    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        unknown = sorted(kwargs.keys() - taken(self.fn))
        if unknown:
            raise TypeError(f"{self.fn.__name__} does not take {', '.join(unknown)}")
        return call(self, *args, **kwargs)

    interpreter.GridExecutor.__call__ = checked


def describe_dtypes_once() -> None:
    """Cache numpy's dtype of each Triton dtype, and make `scalar` a plain attribute of types."""
    np_dtype = interpreter._get_np_dtype
    by_name: Any = functools.cache(lambda name, kind: [])

    def known_np_dtype(dtype: Any) -> Any:
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        found = by_name(element.name, type(element))
        if not found:
            found.append(np_dtype(dtype))
        return found[0]

    interpreter._get_np_dtype = known_np_dtype
    # It was a property that is computed at each access.
    tl.dtype.scalar = itself = functools.cached_property(lambda dtype: dtype)
    itself.__set_name__(tl.dtype, "scalar")
    del tl.pointer_type.scalar, tl.block_type.scalar


def describe_blocks_once() -> None:
    """Cache the shapes of block types. Equal shapes are one object, so that the caches below can use its id as key."""
    block = tl.block_type.__init__
    shapes: dict[Any, Any] = {}
    known_shapes: dict[int, Any] = {}

    def init_block(self: Any, element_ty: Any, shape: Any) -> None:
        self.scalar = element_ty
        known = known_shapes.get(id(shape))
        if known is None:
            key = (*shape,) if all(type(size) is int for size in shape) else None
            known = shapes.get(key)
        if known is None:
            block(self, element_ty, shape)
            if key is not None:
                known = self.shape, self.numel, {}
                known_shapes[id(self.shape)] = shapes[key] = known
            return
        self.element_ty = element_ty
        self.shape, self.numel, names = known
        name = names.get(element_ty.name)
        if name is None:
            name = names[element_ty.name] = f"<{self.shape}, {element_ty}>"
        self.name = name

    tl.block_type.__init__ = init_block


def describe_tensors_once() -> None:
    """Cache the shapes of tensors, and check a handle only where its dtype or the size of its data asks for it."""
    tensor = tl.tensor.__init__
    described: dict[int, Any] = {}

    def init_tensor(self: Any, handle: Any, type: Any) -> None:
        shape = type.shape if type.is_block() else None
        known = described.get(id(shape))
        if known is None:
            tensor(self, handle, type)
            described[id(shape)] = self.shape, self.numel, shape
            return
        self.handle = handle
        self.type = type
        self.dtype = type.scalar
        self.shape, self.numel, _ = known

    tl.tensor.__init__ = init_tensor

    check, scalar, pointer = interpreter.TensorHandle.__post_init__, tl.dtype, tl.pointer_type

    def init_handle(self: Any, data: Any, dtype: Any, attr: Any = None) -> None:
        self.data = data
        self.dtype = dtype
        self.attr = {} if attr is None else attr
        kind = type(dtype)
        if kind is not pointer and (kind is not scalar or 8 * data.itemsize > dtype.primitive_bitwidth):
            check(self)

    interpreter.TensorHandle.__init__ = init_handle


def leave_out_unread() -> None:
    """Skip the checks for integer overflow unless `debug` is set (it never is), because nothing reads their result."""
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=options.debug)


def reduce_by_halves() -> None:
    """Reduce as a tree: each call combines even with odd elements of all rows, instead of one element per call."""

    def generic_reduce(self: Any, given: tuple[Any, ...]) -> list[Any]:
        values, axis = self.unravel(given, self.axis)
        dtypes = [one.dtype for one in values]
        tensors_ = [one.handle.data for one in values]

        def tensors(tensors_: Iterable[Any]) -> list[Any]:
            return [self.to_tensor(tensor, dtype) for tensor, dtype in zip(tensors_, dtypes, strict=True)]

        def every_second(first: int) -> list[Any]:
            return tensors(tensor[(slice(None),) * axis + (slice(first, None, 2),)] for tensor in tensors_)

        while tensors_[0].shape[axis] > 1:
            found = self.combine_fn.fn(*every_second(0), *every_second(1))
            tensors_ = [one.handle.data for one in (found if isinstance(found, tuple) else (found,))]
        if not self.keep_dims:
            return tensors(tensor.squeeze(axis) for tensor in tensors_)
        if self.axis is None:
            return tensors(tensor.reshape((1,) * given[0].handle.data.ndim) for tensor in tensors_)
        return tensors(tensors_)

    interpreter.ReduceOps.generic_reduce = generic_reduce


def broadcast_once() -> None:
    """Skip broadcasting of equal shapes, and cache the broadcast shape of other pairs.

    For the operands of a binary operation only the types are broadcast, because numpy broadcasts the data.
    """
    broadcast = TritonSemantic.broadcast_impl_value
    found: dict[Any, Any] = {}

    def broadcasting(spread: Any, broadcast_to: Any) -> Any:
        def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
            shapes = left, right = getattr(lhs.type, "shape", None), getattr(rhs.type, "shape", None)
            if left is right:
                return lhs, rhs
            if left is None:
                return spread(self, lhs, right), rhs
            if right is None:
                return lhs, spread(self, rhs, left)
            known = found.get((id(left), id(right)))
            if known is None:
                pair = broadcast(self, lhs, rhs)
                if len(left) == len(right):
                    wide = pair[0].type.shape
                    found[id(left), id(right)] = wide, left is not wide, right is not wide, shapes
                return pair
            wide, first, second, _ = known
            return broadcast_to(self, lhs, wide) if first else lhs, broadcast_to(self, rhs, wide) if second else rhs

        return broadcast_impl_value

    def spread(self: Any, scalar: Any, shape: Any) -> Any:
        block = tl.block_type(scalar.dtype, shape)
        return tl.tensor(self.builder.create_splat(block, scalar.handle), block)

    def broadcast_to(self: Any, value: Any, shape: Any) -> Any:
        return tl.tensor(self.builder.create_broadcast(value.handle, shape.values), tl.block_type(value.dtype, shape))

    def typed(_: Any, value: Any, shape: Any) -> Any:
        return tl.tensor(value.handle, tl.block_type(value.dtype, shape))

    TritonSemantic.broadcast_impl_value = broadcasting(spread, broadcast_to)
    TritonSemantic.broadcast_types = broadcasting(typed, typed)


def promote_once() -> None:
    """Cache the promoted dtypes of a binary operation, and the tensors that its Python scalars become."""
    check = TritonSemantic.binary_op_type_checking_impl
    found: dict[Any, Any] = {}
    tensors: dict[Any, Any] = {}

    def binary_op_type_checking_impl(self: Any, lhs: Any, rhs: Any, *options: bool, **named: bool) -> Any:
        if named or type(lhs) is not tl.tensor:
            return check(self, lhs, rhs, *options, **named)
        if type(rhs) is not tl.tensor:
            return with_scalar(self, lhs, rhs, options)
        key = lhs.dtype.name, rhs.dtype.name, options
        known = found.get(key)
        if known is None:
            pair = check(self, lhs, rhs, *options)
            found[key] = [None if one.dtype.name == name else one.dtype for one, name in zip(pair, key, strict=False)]
            return pair
        first, second = known
        return self.broadcast_types(
            lhs if first is None else self.cast(lhs, first), rhs if second is None else self.cast(rhs, second)
        )

    def with_scalar(self: Any, tensor: Any, number: Any, options: tuple[bool, ...]) -> Any:
        # The id of a shape is a key since cached shapes are one object; repr, since 0.0 == -0.0; get_fp32, since
        # formula checks patch it.
        shape, constants = id(getattr(tensor.type, "shape", None)), interpreter.InterpreterBuilder.get_fp32
        key = tensor.dtype.name, shape, type(number), repr(number), options, constants
        known = tensors.get(key)
        if known is None:
            pair = check(self, tensor, number, *options)
            if len(tensors) == MOST_SCALARS:
                tensors.clear()
            tensors[key] = *pair, getattr(tensor.type, "shape", None)
            return pair
        like, number, _ = known
        return tensor if like.dtype.name == tensor.dtype.name else self.cast(tensor, like.dtype), number

    TritonSemantic.binary_op_type_checking_impl = binary_op_type_checking_impl
    promote, types = TritonSemantic.computation_type_impl, {}

    def computation_type_impl(self: Any, a: Any, a_is_scalar: bool, b: Any, b_is_scalar: bool, division: bool) -> Any:
        key = a.name, a_is_scalar, b.name, b_is_scalar, division
        if key not in types:
            types[key] = promote(self, a, a_is_scalar, b, b_is_scalar, division)
        return types[key]

    TritonSemantic.computation_type_impl = computation_type_impl


# Plans and interpreted kernels create many small objects; more frequent garbage collection takes a sixth of the time.
gc.set_threshold(1_000_000)

# Releases of Triton differ in how the interpreter patches; without the names used here it stays unpatched.
if all(hasattr(interpreter, name) for name in ("_LangPatchScope", "_patch_lang", "_get_np_dtype", "_MISSING")):
    patch_once()
    refuse_unknown_keywords()
    describe_dtypes_once()
    describe_blocks_once()
    describe_tensors_once()
    leave_out_unread()
    reduce_by_halves()
    broadcast_once()
    promote_once()
