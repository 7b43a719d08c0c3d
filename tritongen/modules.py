"""Op -> the views of its generated modules: everything that a template prints, ready as text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .extract import extract, mentioned
from .host import Host
from .host_checks import INTERPRETED, IS_FAKE, constants, returned_types, tuple_text
from .ir import Op, Value
from .launch import Traffic
from .layout import LONGEST, wrapped
from .literals import code_of, prose
from .lower import Compute, Line
from .resources import templates_dir
from .space import Space
from .structure import Program
from .unread import without_unread
from .views import Kernel

DEVICE_SOURCES = ("functions.py", "special.py", "reductions.py", "products.py", "float8.py")
HOST_SOURCES = ("host.py", "launches.py", "torch_library.py")
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
    "choose_stages",
    "use_descriptors",
    "choose_descriptors",
    "choose_shares",
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
        texts |= {"choose_pointers", "choose_parts", "choose_stages"} if "pointers" in self.traffic.kinds else set()
        described = {"use_descriptors", "choose_descriptors", "resident_programs"}
        texts |= described if "descriptors" in self.traffic.kinds else set()
        texts |= {"choose_shares"} if "shares" in self.traffic.kinds else set()
        return tuple(rule for rule in RULES if any(rule in text for text in texts))


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


# What of a view is told to readers, and what it says besides of arguments and results.
_PROSE = ("title", "summary", "formula", "derived", "notes", "also_raises", "raises", "says")
_HEAD = ("signature", "returns")


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
        refusals = host.checks()
        if extra.get("find"):  # A call like this one has passed them.
            guarded = ["if launch is None:", *(f"    {line}" for line in refusals)] if refusals else []
            refusals = [*extra["find"], *guarded]
        checks = [*refusals, *host.shapes()]
        fields = [*host.tensor_fields(), *host.param_fields()]
        results = host.result_fields()
        tensors = [f"{f.name}: {f.annotation}{f' = {f.default}' if f.default else ''}" for f in host.tensor_fields()]
        params = [f"{f.name}: {f.annotation}{f' = {f.default}' if f.default else ''}" for f in host.param_fields()]
        params_signature = ["*", *params] if params else []
        view: dict[str, Any] = {
            "name": op.name,
            "title": _sentence(op),
            "summary": _sentence(op),
            "formula": [line for v in op.values if v.source for line in formula(v)],
            "derived": (),
            "notes": (),
            "also_raises": (),
            "signature": ", ".join([*tensors, *params_signature]),
            "returns": returned_types(len(results)),
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
        code = {key: text for key, text in view.items() if key not in ("checks", "fold", *_HEAD)}
        fold = view.get("fold", [])
        view["checks"] = without_unread(checks, _strings([code, fold]))
        view["fold"] = without_unread(fold, _strings(code))
        view["devices"] = frozenset(name for kernel in self.kernels for name in kernel.devices)
        if "_to_float8" in view["devices"]:
            view["constants"] = (*view["constants"], INTERPRETED)
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

    @property
    def knows(self) -> bool:
        """Whether calls know the launches of calls like them: torch sees those of what is registered, a search launches
        several, and a result that takes the memory of an input may lie in new memory another time.
        """
        in_place = any(result.over for result in self.op.results)
        return self.around.register == "none" and not self.autotune and not in_place

    def known_launch(self, kernel: Kernel, grid: str) -> list[str]:
        """The launch of a kernel, the only one of a call, by which calls like it launch the same at once."""
        if not self.knows:
            return self.launch(kernel, grid)
        tensors, integers, params = self.arguments(kernel)
        texts = ", ".join(
            tuple_text(_starred(group, self.space).split(", ") if group else [])
            for group in (tensors, integers, params)
        )
        options = f"{self.specialised(kernel)}, {CHOSEN}"
        return [f"grid = {grid}", f"_launch(call_key, {kernel.name}, grid, {texts}, {options})"]

    def arguments(self, kernel: Kernel) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
        """What is passed to a kernel: tensors, integers and params, in this order."""
        names = [tensor.name for tensor in self.op.inputs] + [result.output.name for result in self.op.results]
        tensors = tuple(name for name in kernel.passed if name in names)
        params = tuple(name for name in kernel.passed if name in {param.name for param in self.op.params})
        integers = kernel.passed[len(tensors) : len(kernel.passed) - len(params)]
        assert (*tensors, *integers, *params) == kernel.passed
        return tensors, integers, params

    def known(self, kernel: Kernel) -> dict[str, list[str]]:
        """The lines that find the launch of a call like this one, and launch it where results are allocated."""
        if not self.knows:
            return {"find": [], "known": []}
        tensors, _, params = map(list, self.arguments(kernel))
        return {
            "find": self.find(),
            "known": self.launch_again(f"{tuple_text(tensors)}, {tuple_text(params)}", self.host.result()),
        }

    def find(self, *more: str) -> list[str]:
        """The lines that find the launch of a call like this one."""
        settings = [text for param in self.op.params for text in _setting(param)]
        inputs = tuple_text([tensor.name for tensor in self.op.inputs])
        key = ", ".join([f'"{self.around.function}"', inputs, *settings, *more, *self.around.extra])
        return [f"call_key = _call_key({key})", "launch = _known_launch(call_key)"]

    def launch_again(self, passed: str, result: str) -> list[str]:
        """The lines that launch what is known, and return."""
        return [
            "if launch is not None:",
            f"    with _on({self.first()}.device):",
            f"        launch({passed})",
            f"    return {result}",
        ]

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
    typing = ", ".join(name for name in ("Any", "ClassVar") if re.search(rf"\b{name}\b", text))
    standard += [f"from typing import {typing}"] if typing else []
    return (
        *standard,
        *([""] if standard else []),
        "import torch",
        "import triton",
        "import triton.language as tl",
        *(["from triton.tools.tensor_descriptor import TensorDescriptor"] if "TensorDescriptor" in text else []),
    )


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


def formula(value: Value, width: int = LONGEST) -> list[str]:
    """The lines of a docstring that give a line of [compute]."""
    return [prose(line) for line in wrapped(f"{value.name} = {value.source}", width=width)]


def _sentence(op: Op) -> str:
    text = prose(" ".join(op.summary.split())) or f"The operator {op.name}"
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _setting(param: Any) -> list[str]:
    """What of a param a launch depends on: its type alone, where each number does."""
    return [f"type({param.name})"] + ([param.name] if param.kind != "float" or _limited(param) else [])


def _limited(param: Any) -> bool:
    return bool(param.choices) or param.minimum is not None or param.maximum is not None


def _strings(value: Any) -> set[str]:
    """All code in a view, to see which host functions it calls; readers are told of what is not called."""
    if isinstance(value, str):
        return {code_of(value)}
    if isinstance(value, dict):
        return {text for key, part in value.items() if key not in _PROSE for text in _strings(part)}
    if isinstance(value, list | tuple | set | frozenset):
        return {text for part in value for text in _strings(part)}
    if isinstance(value, Line):
        return {code_of(value.text)}
    return set()
