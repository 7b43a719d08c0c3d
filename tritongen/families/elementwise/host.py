"""The view of a function that maps elements: see `tritongen.families.elementwise.kernels`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.module import Around, Common, Module, length_text
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
        plan, host = self.plan, self.host
        strided = self.searched(plan.strided, "TILE")
        assert strided is not None
        extra: dict[str, Any] = {
            "family": "elementwise",
            "flat": None,
            "choose": [],
            "one_axis": is_line(plan.space),
            "numel": self.numel(),
        }
        if extra["one_axis"]:
            return self.line(extra)
        extra |= {"strided": self.kernel_view(strided), **self.known(strided)}
        if plan.space.split:
            extra["fold"] = [
                *host.fold("rows", self.space.rows),
                *host.fold("cols", self.space.cols),
                *self.counts(),
            ]
        else:
            extra["fold"] = self.fold_all()
        grid = 'tensors.cdiv(n_rows, config.kwargs["BLOCK_M"]) * tensors.cdiv(n_cols, config.kwargs["BLOCK_N"]),'
        choice = [f"config = configs.TILE{self.tables}.choose(n_rows, n_cols, {self.cols_contiguous()})"]
        extra["launch_strided"] = [
            *([] if self.autotune else choice),
            *self.known_launch(strided, f"({grid})"),
        ]
        if plan.flat is not None and plan.body is not None:
            extra |= self.flat(plan.body, plan.flat)
        kinds = {"tile", "flat"} if plan.flat is not None else {"tile"}
        return Module(self.view(extra), Traffic(frozenset(kinds)))

    def line(self, extra: dict[str, Any]) -> Module:
        """The module of an operator of one axis, whose strides a kernel takes as they are."""
        strided = replace(self.plan.strided, arguments=tuple(map(self.unfolded, self.plan.strided.arguments)))
        strided = self.searched(strided, "FLAT") or strided
        choice = [] if self.autotune else [f"config = configs.FLAT{self.tables}.choose(n)"]
        launch = [*choice, *self.known_launch(strided, '(tensors.cdiv(n, config.kwargs["BLOCK"]),)')]
        extra |= {"strided": self.kernel_view(strided), "fold": [], "launch_strided": launch, **self.known(strided)}
        if self.plan.flat is not None and self.plan.body is not None:
            extra |= self.flat(self.plan.body, self.plan.flat)
            if not self.autotune:  # Both kernels have the same configurations and grid.
                extra["choose"], extra["launch_strided"] = launch[:2], launch[2:]
                extra["flat"] |= {"choice": "", "launch": extra["flat"]["launch"][1:]}
        return Module(self.view(extra), Traffic(frozenset({"flat"})))

    def unfolded(self, argument: Argument) -> Argument:
        """An argument as the wrapper of one axis has it at hand."""
        name, _, _ = argument.value.partition("_cols[")
        optional = {tensor.name for tensor in self.op.inputs if tensor.default is not None}
        if argument.spelling == "n_cols":
            return Argument("n_cols", "n")
        if name == argument.value:
            return argument
        stride = f"{name}.stride(0)"
        return Argument(argument.spelling, f"{stride} if {name} is not None else 0" if name in optional else stride)

    def whole(self) -> str:
        """The name of a tensor of the shape of the results; "" where none is there for sure."""
        result = self.op.results[0]
        like = self.host.like(result)
        return result.output.name if not result.when else like.name if like is not None else ""

    def numel(self) -> str:
        return f"{self.whole()}.numel()" if self.whole() else length_text(self.op.results[0].axes)

    def counts(self) -> list[str]:
        return [f"n_rows, n_cols = {length_text(self.space.row_axes)}, {length_text(self.space.col_axes)}"]

    def cols_contiguous(self) -> str:
        moving = [name for name, _, optional in self.host.moving(self.space.cols) if not optional]
        return " and ".join(f"{name}_cols[-1] in (0, 1)" for name in moving)

    def fold_all(self) -> list[str]:
        """One fold of all dimensions; the innermost that is left is the columns."""
        dims = self.space.dims
        axes = dims[-1].axes
        named = self.host.moving(dims)
        strides = [self.host.optional(self.host.strides(n, a, axes), n, o, axes) for n, a, o in named]
        lines = [
            f"folded = tensors.fold_by_stride({len(dims)}, {self.host.sizes(axes, True)}, {tuple_text(strides)})",
            "if folded is None:  # More dimensions than the kernel steps through.",
            f"    return {self.host.retry()}",
            f"sizes, {tuple_text([f'{n}_steps' for n, _, _ in named])} = folded",
        ]
        if len(dims) == 1:
            lines.append("n_rows, n_cols = 1, sizes[0]")
            return [*lines, *(f"{name}_cols = {name}_steps" for name, _, _ in named)]
        sizes = "row_sizes, n_cols = sizes[:-1], sizes[-1]"
        if not any("row_sizes" in value for value in self.plan.strided.passed):
            sizes = "n_cols = sizes[-1]"
        lines += [sizes, "n_rows = n // n_cols"]
        for name, _, _ in named:
            lines.append(f"{name}_rows, {name}_cols = {name}_steps[:-1], {name}_steps[-1:]")
        return lines

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
            "tile": {**self.kernel_view(body), "inner_signature": signature},
            "flat": {
                **self.kernel_view(runtime),
                "launch": self.known_launch(runtime, '(tensors.cdiv(n, config.kwargs["BLOCK"]),)'),
                "choice": "" if self.autotune else f"config = configs.FLAT{self.tables}.choose(n)",
                "inner_full": f"{arguments}, offsets, None{rest}",
                "inner_masked": f"{arguments}, offsets, offsets < n{rest}",
            },
            "is_contiguous": " and ".join(tests),
            "is_flat": " and ".join(["n_rows == 1", *steps]),
        }
