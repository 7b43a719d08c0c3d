"""Spec -> the text of its generated files."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..autodiff.gradient import derive
from ..diagnostics.report import Mistake, Mistakes
from ..emit.configs import configs_view, tables_of
from ..emit.format import LINE
from ..emit.host_checks import IS_FAKE
from ..emit.hygiene import resolved
from ..emit.imports import (
    PACKAGES,
    RUNTIME_FOLDER,
    STANDARD,
    TESTING_FOLDER,
    device_imports,
    gluon_imports,
    host_imports,
    imports_of,
)
from ..emit.module import Around, Module
from ..emit.registration import autocast_rule, registration_view
from ..emit.scoping import undefined_names
from ..families.family import Families, Step, module_of
from ..families.registry import families_of_steps, step_of
from ..families.stream import NotStreamed, StoredScores
from ..families.streaming.stored import stores
from ..lang.ir import Op
from ..lang.names import in_spec_names, marked, shown
from ..lang.reference import reference_mistakes
from ..lang.typecheck import typecheck
from ..lowering.views import Kernel
from ..nest.check import check as check_nest
from ..nest.layout import laid_out
from ..passes.lost_rows import with_lost_rows
from ..passes.structure import read_lines, without_aliases
from ..plan.backward import Backward, plan_operator
from ..plan.contraction_gradient import plan_contraction_backward
from ..plan.gradient_in_forward import plan_ahead
from ..plan.streaming_before import plan_streams_backward, streams_in
from ..planner.cost import multiplies_outer
from ..resources import template_folders
from ..spec.types import Grad, Schedule, Spec
from ..testing.benchmarks import bench_view
from ..testing.tests import GradientTests, sibling_imports, tests_view
from .autograd import BACKWARD, autograd_module
from .gradient_tests import gradient_tests
from .unused import unused_options

if TYPE_CHECKING:
    import jinja2

PASSING = ("kernels.py", "gluon_kernels.py", "op.py")  # The last passes the others constants by name.


def check(spec: Spec) -> None:
    """Raise `Mistakes` for what is wrong with a spec's math."""
    backward_of(spec, forward_of(spec))


def backward_of(spec: Spec, forward: Step) -> Backward | None:
    """The plan of the gradient, if there is one. Raises `Mistakes` for that, and for options that no step uses."""
    backward = _planned(spec, forward) if spec.grad else None
    if mistakes := unused_options(spec, (forward, *(backward.plan.steps if backward else ()))):
        raise Mistakes(*mistakes)
    return backward


def _planned(spec: Spec, forward: Step) -> Backward:
    assert spec.grad is not None
    op, families = forward.op, families_of_steps(spec.register != "none")
    is_ahead = spec.grad.write != "backward"
    # Refuses math without any gradient, for contractions too.
    gradient = derive(op, replace(spec.grad, save=None) if is_ahead else spec.grad)
    if is_ahead:
        return plan_ahead(gradient, forward, spec.grad, families, spec.register)
    if contraction := forward.family.matmuls(forward.program):
        try:
            backward = plan_contraction_backward(op, contraction, spec.grad, families)
        except Mistakes as refused:
            return _plan_operator(spec.grad, forward, families, refused)
        if spec.grad.save == () and any(result.saved for result in backward.forward.op.results):
            return plan_operator(op, spec.grad, forward, families)
        if not any(map(multiplies_outer, backward.plan.steps)):
            return backward
        with suppress(Mistakes):
            return min(backward, plan_operator(op, spec.grad, forward, families), key=lambda one: one.time)
        return backward
    streams = streams_in(forward)
    if not streams:
        return plan_operator(op, spec.grad, forward, families)
    try:
        return plan_streams_backward(forward, streams, spec.grad, families)
    except NotStreamed as refused:
        why = str(refused)
    backward, (_, stream) = plan_operator(forward.program.written, spec.grad, forward, families), streams[0]
    axes = (stream.rows, stream.streamed)
    gradients = [result.output.name for result in backward.gradient.op.results]
    is_stored = stores((backward.forward, *backward.plan.steps), axes, gradients)
    return replace(backward, stored=StoredScores(axes, why) if is_stored else None)


def _plan_operator(grad: Grad, forward: Step, families: Families, refused: Mistakes) -> Backward:
    """The gradient planned in one piece instead of split at the forward's matmuls; raises `refused` if that fails."""
    try:
        return plan_operator(forward.op, grad, forward, families)
    except Mistakes:
        raise refused from None


def forward_of(spec: Spec) -> Step:
    """The step that computes a spec. Raises `Mistakes` for what is wrong with its math, reference and schedule."""
    return _forward(spec, lambda *same: same)[1]


def _forward(spec: Spec, named: Callable[[Spec, Op], tuple[Spec, Op]]) -> tuple[Spec, Step]:
    """The spec with the names that `named` gives, and the step that computes it; mistakes have the user's names."""
    mistakes = reference_mistakes(spec)
    try:
        op = typecheck(spec)
        if not mistakes:  # The text of a reference may be no expression.
            spec, op = named(spec, op)
        with in_spec_names():
            step = _step(spec, op)
            if refused := _refused(step, spec.schedule):
                raise Mistakes(*refused)
    except Mistakes as found:
        raise Mistakes(*mistakes, *found.mistakes) from None
    if mistakes:
        raise Mistakes(*mistakes)
    return spec, step


def _refused(step: Step, schedule: Schedule) -> list[Mistake]:
    """The mistakes about tiles of a schedule that some kernels cannot have, and about lists that no step can use."""
    steps = step.family.steps(step.program) or (step,)
    steps = tuple(sorted(steps, key=lambda one: one.family.matmuls(one.program) is None))
    each = [{mistake.key[1]: mistake for mistake in one.family.check(schedule)} for one in steps]
    mistakes = {key: mistake for found in reversed(each) for key, mistake in found.items()}
    return [mistakes[key] for key in mistakes if key in ("block_m", "block_n") or all(key in found for found in each)]


def _step(spec: Spec, op: Op) -> Step:
    """The step that computes a spec, without the runtime's gemm if the schedule lists what only matmul kernels have."""
    is_listed = bool(spec.schedule.block_k or spec.schedule.num_stages)
    saved = (spec.grad.save if spec.grad else None) or ()
    op = with_lost_rows(read_lines(without_aliases(op, saved), saved))
    return step_of(op, (), families_of_steps(spec.register != "none" or is_listed))


def generate(spec: Spec, runtime: str = "..", width: int = LINE) -> dict[str, str]:
    """File name -> text of the files that a spec becomes, unformatted and without header.

    `runtime` is where the runtime's package is, seen from the folder of the operator: beside it, or in it ("."). Lines
    of kernels are as wide as `width`, where names make them so.
    """
    made = made_of(spec)
    with in_spec_names():
        files = _files(made, runtime, width)
        passing = tuple(name for name in PASSING if name in files)
        for together in (passing, *((name,) for name in files if name not in passing)):
            files |= zip(together, resolved(*(files[name] for name in together)), strict=True)
    files = {name: text.rstrip() + "\n" for name, text in files.items()}
    for name in passing:
        if missing := undefined_names(files[name]):
            raise NameError(f"{name} mentions what is not defined: {', '.join(missing)}")
    return files


@dataclass(frozen=True, slots=True)
class Made:
    """A spec with marked names, its steps, and their modules: the public one, and modules of the gradient's steps."""

    spec: Spec
    forward: Step
    backward: Backward | None
    module: Module
    computed: tuple[tuple[Step, Module], ...]


@functools.lru_cache(maxsize=1)
def made_of(spec: Spec) -> Made:
    """The steps and modules that files are printed from. Raises `Mistakes` for what is wrong with a spec's math."""
    spec, forward = _forward(spec, marked)
    with in_spec_names():
        backward = backward_of(spec, forward)
        autocast = autocast_rule(forward.program, forward.family.autocast)
        if backward is None:
            return Made(spec, forward, None, forward_module(forward, spec, autocast), ())
        return Made(spec, forward, backward, *autograd_module(backward, spec, autocast))


def _files(made: Made, home: str, width: int) -> dict[str, str]:
    """The files, in which names of the spec are still marked; `home` is the package that has the runtime."""
    package, testing = f"{home}{RUNTIME_FOLDER}", f"{home}{TESTING_FOLDER}"
    spec, forward, backward, computed = made.spec, made.forward, made.backward, made.computed
    family, program = forward.family, forward.program
    autocast = autocast_rule(program, family.autocast)
    module = replace(
        made.module, view=made.module.view | {"notes": _noted(made.module.view["notes"], forward, backward)}
    )
    launches = [one for _, step in computed for one in step.launches]
    unlisted = Schedule(autotune=spec.schedule.autotune)  # Listed tiles are for the forward alone.
    tables = [*tables_of(module.launches, spec.schedule, ""), *tables_of(launches, unlisted, BACKWARD)]
    configs = configs_view(spec.name, tables, spec.schedule)
    tests = family.tests(spec, program, module)
    gradient = GradientTests()
    if backward is not None:
        gradient = gradient_tests(program.op, backward, computed, tests.shapes, tables)
    tested = tests_view(spec, program, tests, gradient, configs["search"], autocast)
    sizes = family.benchmark(spec, program)
    modules = (module, *(inner for _, inner in computed))
    for kernel in (kernel for each in modules for one in each.every for kernel in one.view["nests"]):
        check_nest(kernel.body, (*kernel.names, *kernel.constexprs, *kernel.blocks))
    gluon = [one for each in modules for one in each.gluon_kernels]
    for kernel in gluon:
        check_nest(kernel.body, (*kernel.names, *kernel.constexprs), narrow=True)
    return {
        "__init__.py": render("init.py.jinja", module.view | {"runtime": package}),
        "kernels.py": framed("kernels.py.jinja", module.view, device_imports(package), width),
        **({"gluon_kernels.py": gluon_module(module, gluon, package, width)} if gluon else {}),
        "op.py": framed("op.py.jinja", module.view, host_imports(package), width),
        "configs.py": render("configs.py.jinja", configs | {"runtime": package}),
        f"test_{spec.name}.py": tests_of(tested, sibling_imports(forward.op, home), testing),
        f"bench_{spec.name}.py": render(sizes.template, bench_view(spec, program.op, sizes, testing)),
    }


def gluon_module(module: Module, kernels: list[Kernel], package: str, width: int) -> str:
    view = module.view | {"gluon_kernels": kernels, "also_untyped": ", allow-untyped-calls"}  # Gluon has no types.
    return framed("gluon_kernels.py.jinja", view, gluon_imports(package), width)


def framed(template: str, view: Mapping[str, Any], provided: Mapping[str, str], width: int) -> str:
    """A module with the imports that its code asks for."""
    body = render(template, view, width)
    lax = "no-warn-return-any" if template == "op.py.jinja" else "allow-incomplete-defs"  # of autograd and of kernels
    return render("module.py.jinja", view, body=body, lax=lax, imports=imports_of(body, provided))


def tests_of(view: Mapping[str, Any], siblings: Mapping[str, str], harness: str) -> str:
    """A test file, which sets Triton up between the imports of packages and those of the project."""
    body = render("test_class.jinja", view)
    imports = imports_of(f"os.environ, torch.cuda\n{body}", {**STANDARD, **PACKAGES, **siblings})
    project = next(n for n, line in enumerate(imports) if line.startswith("from ."))
    packages, others = imports[: project - 1], imports[project:]
    about = {"harness": harness.strip("."), "packages": packages, "siblings": others, "body": body}
    return render("test.py.jinja", {**view, **about})


def stored_in(forward: Step, backward: Backward | None) -> tuple[tuple[str, StoredScores], ...]:
    """The stored scores, each with "forward" or "backward", whichever stores them."""
    found = ("forward", forward.stored), ("backward", None if backward is None else backward.stored)
    return tuple((title, one) for title, one in found if one is not None)


def _noted(notes: Sequence[str], forward: Step, backward: Backward | None) -> list[str]:
    """The notes of the public function's docstring, with sentences about stored scores."""
    found = list(notes)
    for title, stored in stored_in(forward, backward):
        text = stored.sentence(title)
        found += [*([""] if found else []), *textwrap.wrap(shown(f"{text[0].upper()}{text[1:]}."), 84)]
    return found


def forward_module(forward: Step, spec: Spec, autocast: str) -> Module:
    """The module of the forward's kernels alone; with `autotune`, launches search their configurations."""
    name = forward.op.name
    if spec.register == "none":
        return module_of(forward, Around(name), spec.schedule.autotune)
    around = Around(f"_{name}_forward", (IS_FAKE,), register=spec.register)
    module = module_of(forward, around, spec.schedule.autotune)
    registration = registration_view(spec, forward.op, autocast)
    view = module.view | {"registration": registration}
    if autocast == "lower":
        view["also_untyped"] = ", allow-untyped-calls"  # torch has no types for Library.
    return replace(module, view=view)


def render(template: str, view: Any, width: int = LINE, **around: Any) -> str:
    return environment(template_folders(), width).get_template(template).render(m=view, **around)


@functools.cache
def environment(folders: tuple[str, ...], width: int = LINE) -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    found.filters |= {"laid_out": functools.partial(laid_out, width=width)}
    return found
