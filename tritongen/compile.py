"""Spec -> the text of its generated files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .diagnostics import Mistakes
from .emitted_bench import bench_view
from .emitted_tests import tests_view
from .launch import configs_view
from .modules import kernel_module
from .reference import reference_mistakes
from .resources import templates_dir
from .scoping import undefined_names
from .spec import Spec
from .structure import Program, recognise
from .typecheck import typecheck

if TYPE_CHECKING:
    import jinja2


def check(spec: Spec) -> None:
    """Raise `Mistakes` for what is wrong with a spec's math."""
    program_of(spec)


def program_of(spec: Spec) -> Program:
    mistakes = reference_mistakes(spec)
    try:
        program = recognise(typecheck(spec))
    except Mistakes as found:
        raise Mistakes(*found.mistakes, *mistakes) from None
    if mistakes:
        raise Mistakes(*mistakes)
    return program


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
        f"bench_{spec.name}.py": render("bench.py.jinja", bench_view(spec, program)),
    }


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
