"""Spec -> the text of its generated files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .diagnostics import Mistake, Mistakes
from .emitted_bench import bench_view
from .emitted_tests import tests_view
from .launch import configs_view
from .modules import Elementwise, Module, Rows
from .product_module import Products
from .reference import reference_mistakes
from .resources import templates_dir
from .scoping import undefined_names
from .spec import Schedule, Spec
from .structure import Program, recognise
from .typecheck import typecheck

if TYPE_CHECKING:
    import jinja2

SMALLEST = 16  # rows and columns of what tensor cores multiply, as Triton has it


def check(spec: Spec) -> None:
    """Raise `Mistakes` for what is wrong with a spec's math."""
    program_of(spec)


def program_of(spec: Spec) -> Program:
    mistakes = reference_mistakes(spec)
    try:
        program = recognise(typecheck(spec))
    except Mistakes as found:
        raise Mistakes(*found.mistakes, *mistakes) from None
    if program.contraction:
        mistakes += schedule_mistakes(spec.schedule)
    if mistakes:
        raise Mistakes(*mistakes)
    return program


def schedule_mistakes(schedule: Schedule) -> list[Mistake]:
    """What a schedule asks for that kernels of matrix products do not do."""
    found = []
    if schedule.autotune:
        message = "kernels of matrix products are not searched for: descriptors are made for the tiles of one"
        hint = "list block_m, block_n, num_warps or num_stages, or leave it out"
        found.append(Mistake("TG606", message, ("schedule", "autotune"), 0, hint=hint))
    for key in ("block_m", "block_n"):
        small = [size for size in getattr(schedule, key) if size < SMALLEST]
        if small:
            message = f"{key} is {small[0]}, and tiles of a matrix product have {SMALLEST} rows and columns or more"
            found.append(Mistake("TG606", message, ("schedule", key), hint=f"write {SMALLEST} or more"))
    return found


def generate(spec: Spec) -> dict[str, str]:
    """File name -> text of the files that a spec becomes, unformatted and without header."""
    program = program_of(spec)
    kernel = kernel_module(program, spec.schedule.autotune)
    configs = configs_view(spec.name, kernel.traffic, spec.schedule, kernel.rules)
    text = render(kernel.template, kernel.view)
    if missing := undefined_names(text):
        raise NameError(f"kernel.py mentions what is not defined: {', '.join(missing)}")
    return {
        "__init__.py": render("init.py.jinja", kernel.view),
        "kernel.py": text,
        "configs.py": render("configs.py.jinja", configs),
        f"test_{spec.name}.py": render("test.py.jinja", tests_view(spec, program, kernel, configs)),
        f"bench_{spec.name}.py": render(
            "bench_products.py.jinja" if program.contraction else "bench.py.jinja", bench_view(spec, program)
        ),
    }


def kernel_module(program: Program, autotune: bool = False) -> Module:
    """The module of a program's kernels; with `autotune`, launches search their configurations."""
    if program.contraction:
        return Products(program).module()
    family = Rows if program.over else Elementwise
    return family(program, autotune).module()


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
