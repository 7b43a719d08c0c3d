"""The view of a function that maps elements: see `tritongen.families.elementwise.kernels`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Common, Module, kernel_view, length_text
from ...lowering.views import Argument, Kernel
from ...passes.structure import Program
from .kernels import MapKernels, is_line, plan_map


class MapModule(Common):
    def __init__(self, program: Program, autotune: bool, around: Around) -> None:
        self.plan: MapKernels = plan_map(program)
        kernels = [k for k in (self.plan.body, self.plan.flat, self.plan.strided) if k is not None]
        super().__init__(program, autotune, self.plan.space, self.plan.compute, kernels, around)

    @property
    def launched(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if kernel is not self.plan.body]

    def module(self) -> Module:
        one_axis = is_line(self.plan.space)
        plan = self.unfolded_plan() if one_axis else self.plan
        strided = self.searched(plan.strided, "FLAT" if one_axis else "TILE")
        assert strided is not None
        extra: dict[str, Any] = {
            "family": "elementwise",
            "autotune": self.autotune,
            "one_axis": one_axis,
            "numel": self.numel(),
            "strided": kernel_view(strided),
            "launch_strided": self.known_launch(strided),
            "flat": None,
            **({} if one_axis else self.folding()),
            **self.known(strided),
        }
        if plan.flat is not None and plan.body is not None:
            extra |= self.flat(plan.body, plan.flat)
        kinds = {"flat"} if one_axis else {"tile", "flat"} if plan.flat is not None else {"tile"}
        return Module(self.view(extra), Traffic(frozenset(kinds)))

    def unfolded_plan(self) -> MapKernels:
        """The kernels of an operator of one axis, whose strides the strided one takes as they are."""
        arguments = tuple(map(self.unfolded, self.plan.strided.arguments))
        return replace(self.plan, strided=replace(self.plan.strided, arguments=arguments))

    def folding(self) -> dict[str, Any]:
        """How rows and columns come about: each folded for itself, or all dimensions at once by their strides."""
        space = self.space
        if not space.split:
            return {"by_stride": self.by_stride(), "contiguous": self.cols_contiguous()}
        return {
            "by_stride": None,
            "fold": [*self.host.fold("rows", space.rows), *self.host.fold("cols", space.cols)],
            "n_rows": length_text(space.row_axes),
            "n_cols": length_text(space.col_axes),
            "contiguous": self.cols_contiguous(),
        }

    def unfolded(self, argument: Argument) -> Argument:
        """An argument as the wrapper of one axis has it at hand."""
        name, _, _ = argument.value.partition("_cols[")
        optional = {tensor.name for tensor in self.op.inputs if tensor.default is not None}
        if argument.spelling == "n_cols":
            return Argument("n_cols", "n")
        if name == argument.value:
            return argument
        axes = {tensor.name: tensor.type.axes for tensor in self.op.inputs}.get(name, ())
        # A tensor that is taken from has axes besides.
        stride = self.host.stride(name, axes, self.space.col_axes[0]) if len(axes) > 1 else f"{name}.stride(0)"
        return Argument(argument.spelling, f"{stride} if {name} is not None else 0" if name in optional else stride)

    def whole(self) -> str:
        """The name of a tensor of the shape of the results; "" where none is there for sure."""
        result = self.op.results[0]
        like = self.host.like(result)
        return result.output.name if not result.when else like.name if like is not None else ""

    def numel(self) -> str:
        return f"{self.whole()}.numel()" if self.whole() else length_text(self.op.results[0].axes)

    def cols_contiguous(self) -> str:
        moving = [name for name, _, optional in self.host.moving(self.space.cols) if not optional]
        return " and ".join(f"{name}_cols[-1] in (0, 1)" for name in moving)

    def by_stride(self) -> dict[str, Any]:
        """One fold of all dimensions."""
        host, dims = self.host, self.space.dims
        axes = dims[-1].axes
        moving = host.moving(dims)
        strides = [host.optional(host.strides(name, own, axes), name, o, axes) for name, own, o in moving]
        return {
            "n_dims": len(dims),
            "sizes": host.sizes(axes, True),
            "strides": tuple_text(strides),
            "retry": host.retry(),
            "tensors": [name for name, _, _ in moving],
            "steps": tuple_text([f"{name}_steps" for name, _, _ in moving]),
            "one_dim": len(dims) == 1,
            "passes_row_sizes": any("row_sizes" in value for value in self.plan.strided.passed),
        }

    def flat(self, body: Kernel, flat: Kernel) -> dict[str, Any]:
        results = [r.output.name for r in self.op.results]
        first, *_ = likes = [self.host.like(result) for result in self.op.results]
        tests, steps = [], []
        for tensor in self.op.inputs:
            if not tensor.type.axes:
                continue
            test, step = f"{tensor.name}.is_contiguous()", f"{tensor.name}_cols == (1,)"
            if tensor is not first:
                test = f"{tensor.name}.shape == {self.whole()}.shape and {test}"
            if tensor.default is not None:
                test, step = f"({tensor.name} is None or ({test}))", f"({tensor.name} is None or {step})"
            tests.append(test)
            steps.append(step)
        tensors = [t.type.axes for t in self.op.inputs] + [r.axes for r in self.op.results]
        if not self.whole() or len({axes for axes in tensors if axes}) > 1:
            tests = []  # Dimensions come in several orders, which equal lengths would not tell.
            likes = [self.op.inputs[0]] * len(likes)
        # A result made like an input is contiguous where that is.
        tests += [f"{name}.is_contiguous()" for name, like in zip(results, likes, strict=True) if like is None]
        steps += [
            f"({r.output.name} is None or {r.output.name}_cols == (1,))" if r.when else f"{r.output.name}_cols == (1,)"
            for r in self.op.results
        ]
        inner = [a.spelling.split(":")[0] for a in body.arguments]
        constexprs = list(body.constexprs)
        signature = ", ".join([*inner, "offsets", "tile_mask", *(f"{name}: tl.constexpr" for name in constexprs)])
        arguments = ", ".join(inner)
        rest = "".join(f", {name}" for name in constexprs)
        names = {param.name for param in self.op.params}
        params = [argument for argument in flat.arguments if argument.value in names]
        pointers = [argument for argument in flat.arguments if argument not in params]
        flat = replace(flat, arguments=(*pointers, Argument("n", "n"), *params))
        runtime = self.searched(flat, "FLAT") or flat
        return {
            "tile": {**kernel_view(body), "inner_signature": signature},
            "flat": {
                **kernel_view(runtime),
                "launch": self.known_launch(runtime),
                "inner_full": f"{arguments}, offsets, None{rest}",
                "inner_masked": f"{arguments}, offsets, offsets < n{rest}",
                "is_contiguous": " and ".join(tests),
                "is_folded": " and ".join(["n_rows == 1", *steps]),
            },
        }
