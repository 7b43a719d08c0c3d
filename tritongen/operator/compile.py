"""Spec -> the text of its generated files."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..autodiff.gradient import derive
from ..diagnostics.report import Mistake, Mistakes
from ..emit.configs import Table, configs_view, matmul_tables, row_tables
from ..emit.host_checks import IS_FAKE
from ..emit.hygiene import resolved
from ..emit.imports import PACKAGES, RUNTIME_FOLDER, STANDARD, device_imports, host_imports, imports_of
from ..emit.matmul_configs import tables_of
from ..emit.module import Around, Module
from ..emit.registration import registration_view
from ..emit.scoping import undefined_names
from ..families.registry import module_of
from ..lang.ir import Op
from ..lang.names import marked, told
from ..lang.reference import reference_mistakes
from ..lang.typecheck import typecheck
from ..passes.structure import Program, recognise
from ..plan.backward import Backward, plan_backward
from ..plan.contraction_gradient import plan_product_backward
from ..plan.gradient_in_forward import plan_ahead
from ..resources import templates_dir
from ..spec.types import Schedule, Spec
from ..testing.benchmarks import bench_view
from ..testing.gradient_tests import gradient_tests
from ..testing.samples import Shapes
from ..testing.tests import sibling_imports, tests_view
from .autograd import autograd_module, backward_tables

if TYPE_CHECKING:
    import jinja2

SMALLEST = 16  # rows and columns of what tensor cores multiply, as Triton has it


def check(spec: Spec) -> None:
    """Raise `Mistakes` for what is wrong with a spec's math."""
    backward_of(spec, program_of(spec))


def backward_of(spec: Spec, program: Program) -> Backward | None:
    if not spec.grad:
        return None
    is_ahead = spec.grad.write != "backward"
    # Refuses, for contractions too, what has no gradient at all.
    gradient = derive(program.op, replace(spec.grad, save=()) if is_ahead else spec.grad)
    if is_ahead:
        return plan_ahead(gradient, program, spec.grad, spec.register)
    return plan_product_backward(program, spec.grad) if program.contraction else plan_backward(gradient, program)


def program_of(spec: Spec) -> Program:
    """The program of a spec. Raises `Mistakes` for what is wrong with its math, its reference and its schedule."""
    mistakes = reference_mistakes(spec)
    try:
        program = recognise(typecheck(spec))
    except Mistakes as found:
        raise Mistakes(*found.mistakes, *mistakes) from None
    mistakes += contraction_schedule(spec.schedule) if program.contraction else other_schedule(spec.schedule)
    if mistakes:
        raise Mistakes(*mistakes)
    return program


def contraction_schedule(schedule: Schedule) -> list[Mistake]:
    """What a schedule asks for that kernels of contractions do not do."""
    found = []
    if schedule.autotune:
        message = "a contraction is not autotuned: its TMA descriptors are made for the tiles of one configuration"
        hint = "list block_m, block_n, num_warps or num_stages, or leave it out"
        found.append(Mistake("TG607", message, ("schedule", "autotune"), 0, hint=hint))
    for key in ("block_m", "block_n"):
        small = [size for size in getattr(schedule, key) if size < SMALLEST]
        if small:
            message = f"{key} is {small[0]}, and tiles of a contraction have at least {SMALLEST} rows and columns"
            found.append(Mistake("TG607", message, ("schedule", key), hint=f"write {SMALLEST} or more"))
    return found


def other_schedule(schedule: Schedule) -> list[Mistake]:
    """What a schedule asks for that only kernels of contractions do."""
    if not schedule.num_stages:
        return []
    message = "num_stages is for the pipelined loop of a contraction, which this operator has not"
    hint = "leave it out, or list block_m, block_n or num_warps"
    return [Mistake("TG607", message, ("schedule", "num_stages"), hint=hint)]


def generate(spec: Spec, runtime: str = "..") -> dict[str, str]:
    """File name -> text of the files that a spec becomes, unformatted and without header.

    `runtime` is where the runtime's package is, seen from the folder of the operator: beside it, or in it (".").
    """
    program_of(spec)
    with told():
        files = _marked_files(*marked(spec, typecheck(spec)), f"{runtime}{RUNTIME_FOLDER}")
        files = {name: resolved(text).rstrip() + "\n" for name, text in files.items()}
    for name in ("kernels.py", "op.py"):
        if missing := undefined_names(files[name]):
            raise NameError(f"{name} mentions what is not defined: {', '.join(missing.values())}")
    return files


def _marked_files(spec: Spec, op: Op, package: str) -> dict[str, str]:
    """The files, in which the names of the spec are marked as they are in it."""
    program = recognise(op)
    backward = backward_of(spec, program)
    parts: tuple[Module, ...] = ()
    if backward is not None:
        module, parts = autograd_module(backward, spec)
    else:
        module = forward_module(program, spec)
    tables = [*tables_of_forward(module, spec.schedule), *(backward_tables(parts) if parts else ())]
    configs = configs_view(spec.name, tables, spec.schedule)
    gradient = gradient_tests(program, backward, parts, Shapes(spec, program), spec.register != "none")
    tested = tests_view(spec, program, module, configs["search"], gradient)
    bench = "bench_products.py.jinja" if program.contraction else "bench.py.jinja"
    return {
        "__init__.py": render("init.py.jinja", module.view | {"runtime": package}),
        "kernels.py": framed("kernels.py.jinja", module.view, device_imports(package)),
        "op.py": framed("op.py.jinja", module.view, host_imports(package)),
        "configs.py": render("configs.py.jinja", configs | {"runtime": package}),
        f"test_{spec.name}.py": tests_of(tested, sibling_imports(program.op, package), package),
        f"bench_{spec.name}.py": render(bench, bench_view(spec, program, package)),
    }


def tables_of_forward(module: Module, schedule: Schedule) -> tuple[Table, ...]:
    summing = module.traffic.summing
    return matmul_tables(tables_of(summing, schedule)) if summing else row_tables(module.traffic, schedule)


def framed(template: str, view: Mapping[str, Any], provided: Mapping[str, str]) -> str:
    """A module with the imports that its text asks for."""
    body = render(template, view)
    return environment().get_template("module.py.jinja").render(m=view, body=body, imports=imports_of(body, provided))


def tests_of(view: Mapping[str, Any], siblings: Mapping[str, str], runtime: str) -> str:
    """A test file, which sets Triton up between what it imports of others and what it imports of the project."""
    body = render("test_class.jinja", view)
    imports = imports_of(f"os.environ, torch.cuda\n{body}", {**STANDARD, **PACKAGES, **siblings})
    project = next(n for n, line in enumerate(imports) if line.startswith("from ."))
    packages, others = imports[: project - 1], imports[project:]
    about = {"runtime": runtime.strip("."), "packages": packages, "siblings": others, "body": body}
    return render("test.py.jinja", {**view, **about})


def forward_module(program: Program, spec: Spec) -> Module:
    """The module of a program's kernels alone; with `autotune`, launches search their configurations."""
    is_registered = spec.register != "none"
    around = Around(program.op.name)
    if is_registered:
        around = Around(f"_{program.op.name}_forward", (IS_FAKE,), register=spec.register)
    module = module_of(program, spec.schedule.autotune, around)
    return registered(module, spec, program) if is_registered else module


def registered(module: Module, spec: Spec, program: Program) -> Module:
    """The module with its operator registered."""
    view = module.view | {"registration": registration_view(spec, program), "head": "inner.jinja"}
    if view["registration"]["lowers"]:
        view["also_untyped"] = ", allow-untyped-calls"  # torch has no types for Library.
    return replace(module, view=view)


def render(template: str, view: Any) -> str:
    return environment().get_template(template).render(m=view)


@functools.cache
def environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
