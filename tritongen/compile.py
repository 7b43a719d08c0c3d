"""Spec -> the text of its generated files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .autograd import autograd_module, traffic_of
from .backward import Backward, plan_backward
from .diagnostics import Mistakes
from .emitted_bench import bench_view
from .emitted_tests import tests_view
from .gradient import derive
from .gradient_tests import gradient_view
from .launch import configs_view
from .modules import Module, kernel_module
from .reference import reference_mistakes
from .resources import templates_dir
from .samples import Shapes
from .spec import Schedule, Spec
from .structure import Program, recognise
from .typecheck import typecheck

if TYPE_CHECKING:
    import jinja2


def check(spec: Spec) -> None:
    """Raise `Mistakes` for what is wrong with a spec's math."""
    backward_of(spec, program_of(spec))


def backward_of(spec: Spec, program: Program) -> Backward | None:
    return plan_backward(derive(program.op, spec.grad), program) if spec.grad else None


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
    files = {}
    backward = backward_of(spec, program)
    parts: tuple[Module, ...] = ()
    if backward is not None:
        kernel, parts = autograd_module(backward, spec.schedule.autotune)
        if parts:
            rules = tuple(dict.fromkeys(rule for part in parts for rule in part.rules))
            view = configs_view(spec.name, traffic_of(parts), Schedule(), rules)
            view["how"] = "backward, and the rule that picks one."
            files["configs_backward.py"] = render("configs.py.jinja", view)
    else:
        kernel = kernel_module(program, spec.schedule.autotune)
    configs = configs_view(spec.name, kernel.traffic, spec.schedule, kernel.rules)
    tested = gradient_view(program.op, backward, parts, Shapes(spec, program))
    return files | {
        "__init__.py": render("init.py.jinja", kernel.view),
        "kernel.py": render("gradient.py.jinja" if spec.grad else kernel.template, kernel.view),
        "configs.py": render("configs.py.jinja", configs),
        f"test_{spec.name}.py": render("test.py.jinja", tests_view(spec, program, kernel, configs, tested)),
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
