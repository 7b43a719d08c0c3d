"""Op -> the views of its generated modules: everything that a template prints, ready as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .extract import extract, mentioned
from .families.elementwise import MapKernels, is_line, plan_map
from .families.rows import RowKernels, plan_rows
from .host import IS_FAKE, Host, constants, tuple_text
from .ir import Op, Reduce
from .launch import Traffic
from .layout import wrapped
from .lower import Compute, Line
from .resources import templates_dir
from .space import Space
from .structure import Program
from .unread import without_unread
from .views import Argument, Kernel

DEVICE_SOURCES = ("functions.py", "special.py", "reductions.py", "products.py")
HOST_SOURCES = ("host.py", "torch_library.py")
RULES = (
    "choose_flat",
    "choose_tile",
    "in_registers",
    "choose_registers",
    "choose_loop",
    "choose_vector",
    "choose_splits",
    "is_whole",
    "choose_whole",
    "choose_sums",
    "choose_programs",
    "choose_whole_programs",
    "use_shared",
    "choose_shared",
    "choose_groups",
    "choose_pointers",
    "choose_parts",
    "use_descriptors",
    "choose_descriptors",
    "resident_programs",
    "warps_specialize",
)
CHOSEN = "**config.kwargs, num_warps=config.num_warps"  # of a launch whose configuration a rule picked


@dataclass(frozen=True, slots=True)
class Module:
    """A template and what it sees."""

    template: str
    view: dict[str, Any]
    traffic: Traffic

    @property
    def rules(self) -> tuple[str, ...]:
        """The functions of configs.py that it calls."""
        own = {key: part for key, part in self.view.items() if key != "gradient"}
        texts = _strings(own) | ({"choose_loop"} if self.view.get("choose") else set())
        texts |= {"choose_splits"} if self.view.get("partial") else set()
        texts |= {"in_registers", "choose_registers"} if self.view.get("registers") else set()
        texts |= {"choose_sums", "choose_programs"} if "sums" in self.traffic.kinds else set()
        texts |= {"is_whole", "choose_whole", "choose_whole_programs"} if "whole" in self.traffic.kinds else set()
        texts |= {"use_shared", "choose_shared", "choose_groups"} if "shared" in self.traffic.kinds else set()
        texts |= {"choose_pointers", "choose_parts"} if "pointers" in self.traffic.kinds else set()
        texts |= {"use_descriptors", "choose_descriptors"} if "descriptors" in self.traffic.kinds else set()
        return tuple(rule for rule in RULES if any(rule in text for text in texts))


def kernel_module(program: Program, autotune: bool, around: Around) -> Module:
    """The module of a program without matrix products."""
    family = _Rows if program.over else _Map
    return family(program, autotune, around).module()


@dataclass(frozen=True, slots=True)
class Around:
    """The function that launches the kernels: its name, its further arguments, and who writes its lines."""

    function: str
    extra: tuple[str, ...] = ()
    configs: str = "configs"
    host: Callable[..., Host] = Host
    register: str = "none"

    def launcher(self, kernel: str) -> str:
        """What launches a kernel; torch sees launches inside a triton_op where they are wrapped."""
        return f"wrap_triton({kernel})" if self.register == "triton_op" else kernel


# What of a view is told to readers.
_PROSE = ("title", "summary", "formula", "derived", "signature", "returns", "raises")


class Common:
    """What the modules of all families have in common."""

    def __init__(
        self,
        program: Program,
        autotune: bool,
        space: Space,
        compute: Compute,
        kernels: list[Kernel],
        around: Around,
    ) -> None:
        self.program, self.op, self.autotune = program, program.op, autotune
        self.host = around.host(program.op, space, compute, around.function, around.extra)
        self.around, self.configs = around, around.configs
        self.space, self.compute, self.kernels = space, compute, kernels

    def view(self, extra: dict[str, Any]) -> dict[str, Any]:
        op, host = self.op, self.host
        checks = [*host.checks(), *host.shapes()]
        fields = [*host.tensor_fields(), *host.param_fields()]
        results = host.result_fields()
        tensors = [f"{f.name}: {f.annotation}{f' = {f.default}' if f.default else ''}" for f in host.tensor_fields()]
        params = [f"{f.name}: {f.annotation}{f' = {f.default}' if f.default else ''}" for f in host.param_fields()]
        returns = "torch.Tensor" if len(results) == 1 else f"tuple[{', '.join(['torch.Tensor'] * len(results))}]"
        params_signature = ["*", *params] if params else []
        view: dict[str, Any] = {
            "name": op.name,
            "title": _sentence(op),
            "summary": _sentence(op),
            "formula": [line for v in op.values if v.source for line in wrapped(f"{v.name} = {v.source}")],
            "derived": (),
            "signature": ", ".join([*tensors, *params_signature]),
            "returns": returns,
            "fields": fields,
            "results": results,
            "raises": (", or a param out of its range" if any(_limited(p) for p in op.params) else ""),
            "checks": checks,
            "allocate": host.allocate(),
            "result": host.result(),
            "constants": constants(op),
            "device": f"{self.first()}.device",
            "index": self.index(),
            "compute": self.compute_text(),
            "configs": self.configs,
            "config_modules": self.configs,
            "also_untyped": "",
            "is_fake": IS_FAKE in self.around.extra,
            "registration": None,
            "gradient": None,
            "head": "signature.jinja",
        }
        view |= extra
        code = {key: text for key, text in view.items() if key not in ("checks", "fold", *_PROSE)}
        fold = view.get("fold", [])
        view["checks"] = without_unread(checks, _strings([code, fold]))
        view["fold"] = without_unread(fold, _strings(code))
        view["devices"] = frozenset(name for kernel in self.kernels for name in kernel.devices)
        view["cdiv"] = "_cdiv(" in "".join(_strings(extra)) or bool(extra.get("flat") or extra.get("pointers"))
        return view | sources(view)

    def compute_text(self) -> str:
        """The dtype to compute in, where a kernel is told of it and no line before has done so."""
        told = any("COMPUTE" in kernel.constexprs for kernel in self.kernels)
        return self.host.compute_value() if told and not self.host.allocates_wide() else ""

    def first(self) -> str:
        tensor = self.host.first()
        assert tensor is not None
        return tensor.name

    def index(self) -> str:
        names = [t.name for t in self.op.inputs] + [r.output.name for r in self.op.results]
        names = [name for name in names if name not in self.op.by_row]
        return f"_index_dtype({', '.join(names)})"

    def specialised(self, kernel: Kernel) -> str:
        """The compile-time arguments of a launch, but for tiles."""
        values = {"COMPUTE": "compute", "VECTOR": "vector"}
        parts = [f"{name}={values.get(name, name)}" for name in kernel.constexprs]
        return ", ".join([*parts, "INDEX=index"])

    def kernel_view(self, kernel: Kernel) -> dict[str, Any]:
        return view_of(kernel, self.space)

    def launch(self, kernel: Kernel, grid: str, tiles: str = CHOSEN, name: str = "grid") -> list[str]:
        if kernel.search and tiles == CHOSEN:
            grid, tiles = "lambda meta: " + grid.replace("config.kwargs", "meta"), ""
        passed = [_starred(kernel.passed, self.space), self.specialised(kernel), tiles]
        launcher = self.around.launcher(kernel.name)
        return [f"{name} = {grid}", f"{launcher}[{name}]({', '.join(filter(None, passed))})"]

    def searched(self, kernel: Kernel | None, candidates: str) -> Kernel | None:
        """The kernel, its configurations left to @triton.autotune where the spec asks for that."""
        if kernel is None or not self.autotune:
            return kernel
        sizes = [name for name in ("n", "n_rows", "n_cols") if name in kernel.names]
        key = ", ".join(f'"{name}"' for name in sizes)
        return replace(kernel, search=candidates, search_key=f"[{key}]")


def sources(*views: dict[str, Any]) -> dict[str, Any]:
    """What a module of some views carries of the functions in templates/, and what it imports."""
    roots = [Path(templates_dir(), name) for name in DEVICE_SOURCES]
    hosts = [Path(templates_dir(), name) for name in HOST_SOURCES]
    always = {"_on("} | ({"_cdiv("} if any(view["cdiv"] for view in views) else set())
    texts = set.union(*map(_strings, views))
    found = extract(hosts, mentioned(texts | always, hosts), forgetful=any(view.get("is_fake") for view in views))
    devices: set[str] = set().union(*(view["devices"] for view in views))
    return {
        "device_sources": extract(roots, devices),
        "host_sources": found,
        "imports": imports([*found, *texts]),
    }


def imports(texts: Iterable[str]) -> tuple[str, ...]:
    text = "\n".join(texts)
    names = ("contextlib", "functools", "itertools", "math")
    standard = [f"import {name}" for name in names if re.search(rf"\b{name}\.", text)]
    abstract = ", ".join(name for name in ("Callable", "Sequence") if f"{name}[" in text)
    standard += [f"from collections.abc import {abstract}"] if abstract else []
    standard += ["from typing import Any"] if re.search(r"\bAny\b", text) else []
    return (
        *standard,
        *([""] if standard else []),
        "import torch",
        "import triton",
        "import triton.language as tl",
        *(["from triton.tools.tensor_descriptor import TensorDescriptor"] if "TensorDescriptor" in text else []),
    )


class _Map(Common):
    def __init__(self, program: Program, autotune: bool, around: Around) -> None:
        self.plan: MapKernels = plan_map(program)
        kernels = [k for k in (self.plan.body, self.plan.flat, self.plan.strided) if k is not None]
        super().__init__(program, autotune, self.plan.space, self.plan.compute, kernels, around)

    def module(self) -> Module:
        plan, host = self.plan, self.host
        strided = self.searched(plan.strided, "TILE")
        assert strided is not None
        extra: dict[str, Any] = {
            "macros": "elementwise.jinja",
            "flat": None,
            "one_axis": is_line(plan.space),
            "numel": self.numel(),
        }
        if extra["one_axis"]:
            return self.line(extra)
        extra["strided"] = self.kernel_view(strided)
        if plan.space.split:
            extra["fold"] = [
                *host.fold("rows", self.space.rows),
                *host.fold("cols", self.space.cols),
                *self.counts(),
            ]
        else:
            extra["fold"] = self.fold_all()
        grid = '_cdiv(n_rows, config.kwargs["BLOCK_M"]) * _cdiv(n_cols, config.kwargs["BLOCK_N"]),'
        choice = [f"config = {self.configs}.choose_tile(n_rows, n_cols, {self.cols_contiguous()})"]
        extra["launch_strided"] = [
            *([] if self.autotune else choice),
            *self.launch(strided, f"({grid})"),
        ]
        if plan.flat is not None and plan.body is not None:
            extra |= self.flat(plan.body, plan.flat)
        kinds = {"tile", "flat"} if plan.flat is not None else {"tile"}
        return Module("kernel.py.jinja", self.view(extra), Traffic(frozenset(kinds)))

    def line(self, extra: dict[str, Any]) -> Module:
        """The module of an operator of one axis, whose strides a kernel takes as they are."""
        strided = replace(self.plan.strided, arguments=tuple(map(self.unfolded, self.plan.strided.arguments)))
        strided = self.searched(strided, "FLAT") or strided
        choice = [] if self.autotune else [f"config = {self.configs}.choose_flat(n)"]
        launch = [*choice, *self.launch(strided, '(_cdiv(n, config.kwargs["BLOCK"]),)')]
        extra |= {"strided": self.kernel_view(strided), "fold": [], "launch_strided": launch}
        if self.plan.flat is not None and self.plan.body is not None:
            extra |= self.flat(self.plan.body, self.plan.flat)
        return Module("kernel.py.jinja", self.view(extra), Traffic(frozenset({"flat"})))

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
            f"folded = _fold_by_stride({len(dims)}, {self.host.sizes(axes, True)}, {tuple_text(strides)})",
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
        flat = replace(flat, arguments=(*flat.arguments, Argument("n", "n")))
        runtime = self.searched(flat, "FLAT") or flat
        return {
            "tile": {**self.kernel_view(body), "inner_signature": signature},
            "flat": {
                **self.kernel_view(runtime),
                "launch": self.launch(runtime, '(_cdiv(n, config.kwargs["BLOCK"]),)'),
                "choice": "" if self.autotune else f"config = {self.configs}.choose_flat(n)",
                "inner_full": f"{arguments}, offsets, None{rest}",
                "inner_masked": f"{arguments}, offsets, offsets < n{rest}",
            },
            "is_contiguous": " and ".join(tests),
            "is_flat": " and ".join(["n_rows == 1", *steps]),
        }


class _Rows(Common):
    def __init__(self, program: Program, autotune: bool, around: Around) -> None:
        self.plan: RowKernels = plan_rows(program)
        plan = self.plan
        kernels = [k for k in (plan.registers, plan.loop, plan.partial, plan.combine) if k is not None]
        super().__init__(program, autotune, plan.space, plan.compute, kernels, around)

    def module(self) -> Module:
        plan, host = self.plan, self.host
        rows, cols = self.space.row_axes, self.space.col_axes
        maps_all = all(set(r.axes) & set(cols) for r in self.op.results)
        extra: dict[str, Any] = {
            "macros": "rows.jinja",
            "registers": None,
            "partial": None,
            "n_rows": length_text(rows),
            "n_cols": length_text(cols),
            "also_empty": " or n_cols == 0" if maps_all else "",
            "empty_errors": [] if maps_all else host.empty_errors(),
            "fold": [*host.fold("rows", self.space.rows), *host.fold("cols", self.space.cols)],
            "contiguous_cols": self.contiguous_cols(),
        }
        extra["vector"] = self.vector() if "VECTOR" in plan.loop.constexprs else ""
        loop = self.searched(plan.loop, "LOOP") or plan.loop
        extra["loop"] = self.kernel_view(loop)
        extra["choose"] = not self.autotune or plan.partial is not None
        row_grid = '(_cdiv(n_rows, config.kwargs["BLOCK_M"]),)'
        extra["launch_loop"] = self.launch(loop, row_grid)
        if plan.registers is not None:
            registers = self.searched(plan.registers, "WARPS") or plan.registers
            extra["registers"] = self.kernel_view(registers)
            tiles = "**config.kwargs" if self.autotune else CHOSEN
            extra["launch_registers"] = self.launch(registers, row_grid, tiles)
        if plan.partial is not None and plan.combine is not None:
            extra |= {
                "partial": self.kernel_view(plan.partial),
                "combine": self.kernel_view(plan.combine),
            }
            extra["workspaces"] = [
                f"{name}_part = torch.empty((n_rows, n_splits), dtype={self.torch_dtype(dtype)}, "
                f"device={self.first()}.device)"
                for name, dtype in plan.states
            ]
            split_grid = '(_cdiv(n_rows, config.kwargs["BLOCK_M"]), n_splits)'
            extra["launch_split"] = [
                *self.launch(plan.partial, split_grid, name="split_grid"),
                *self.launch(
                    plan.combine,
                    "(n_rows,)",
                    "BLOCK_M=1, BLOCK_N=_power_of_two(n_splits), num_warps=4",
                ),
            ]
        kinds = {"loop", "registers"} if plan.registers is not None else {"loop"}
        return Module("kernel.py.jinja", self.view(extra), self.traffic(kinds))

    def traffic(self, kinds: set[str]) -> Traffic:
        moves = [
            (
                self.space.steps(t.type.axes, self.space.rows),
                self.space.steps(t.type.axes, self.space.cols),
            )
            for t in self.op.inputs
        ]
        streams = sum(bool(cols) and (bool(rows) or not self.space.rows) for rows, cols in moves)
        flags = all(isinstance(v.node, Reduce) and v.node.kind in ("any", "all") for v in self.program.reductions)
        vectors = sum(bool(cols) and not rows for rows, cols in moves)
        online = "VECTOR" in self.plan.loop.constexprs
        return Traffic(frozenset(kinds), streams, vectors, flags, not self.program.maps_back, online)

    def torch_dtype(self, dtype: str) -> str:
        if dtype == "INDEX":
            return "torch.int64"
        if dtype == "COMPUTE":
            return "_torch_dtype(compute)"
        return {
            "tl.float32": "torch.float32",
            "tl.int64": "torch.int64",
            "tl.int32": "torch.int32",
        }[dtype]

    def contiguous_cols(self) -> str:
        """Whether the columns of the largest input are next to each other in memory."""
        return f"1 in {self.largest()}_cols"

    def largest(self) -> str:
        """The largest input, by its axes."""
        return max(self.host.moving(self.space.cols), key=lambda entry: len(entry[1]))[0]

    def vector(self) -> str:
        return f"vector = {self.configs}.choose_vector(n_cols, contiguous, {self.largest()}.element_size())"


def view_of(kernel: Kernel, space: Space) -> dict[str, Any]:
    """What templates see of a kernel."""
    names = tuple(kernel.__dataclass_fields__)
    view = {name: getattr(kernel, name) for name in names}
    return view | {
        "signature": kernel.signature,
        "passed": _starred(kernel.passed, space),
        "fixed_text": repr(list(kernel.fixed)),
    }


def _starred(values: tuple[str, ...], space: Space) -> str:
    """The arguments of a launch, a whole `x_rows[0], x_rows[1], …` as `*x_rows`."""
    lengths = {"rows": len(space.rows), "cols": len(space.cols), "sizes": 0}
    parts: list[str] = []
    rest = list(values)
    while rest:
        name, bracket, position = rest[0].partition("[")
        length = lengths.get(name.rsplit("_", 1)[-1], 0)
        if name in ("row_sizes", "col_sizes"):
            length = lengths[f"{name[:3]}s"]
        first = int(position[:-1]) if bracket and position[:-1].isdigit() else length
        whole = [f"{name}[{n}]" for n in range(first, length)]
        if len(whole) > 1 and rest[: len(whole)] == whole and first < 2:
            parts.append(f"*{name}" if first == 0 else f"*{name}[1:]")
            rest = rest[len(whole) :]
        else:
            parts.append(rest.pop(0))
    return ", ".join(parts)


def length_text(axes: tuple[str, ...]) -> str:
    """How the wrapper spells the product of the lengths of some axes."""
    parts = ["math.prod(batch)" if axis == "..." else axis for axis in axes]
    return " * ".join(parts) or "1"


def _sentence(op: Op) -> str:
    text = " ".join(op.summary.split()) or f"The operator {op.name}"
    text = text.replace("\\", "\\\\").replace('"""', "'''")
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _limited(param: Any) -> bool:
    return bool(param.choices) or param.minimum is not None or param.maximum is not None


def _strings(value: Any) -> set[str]:
    """All text in a view, to see which host functions it calls."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return {text for part in value.values() for text in _strings(part)}
    if isinstance(value, list | tuple | set | frozenset):
        return {text for part in value for text in _strings(part)}
    if isinstance(value, Line):
        return {value.text}
    return set()
