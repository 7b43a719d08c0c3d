"""A forward and its backward -> what the subclasses of torch.autograd.Function say."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from ..emit.registration import leading, operator, over_batch
from ..families.family import Step
from ..lang.ir import Dtype, Op
from ..lang.names import shown
from ..lowering.lines import Line
from ..plan.backward import Backward
from ..spec.types import BATCH, Input


def class_view(backward: Backward, namespace: str, saves: bool) -> dict[str, Any]:
    """The class that eager autograd uses, and the one with `setup_context`, which torch.func and torch.library want.

    The namespace is that of a registered operator, "" of others. With `saves`, the forward is told whether to save.
    """
    is_registered = bool(namespace)
    op, gradient = backward.forward.op, backward.gradient
    inputs = [tensor.name for tensor in op.inputs]
    params = [param.name for param in op.params]
    results = [result.output.name for result in op.results]
    own = [result.output.name for result in op.results if not result.when]
    read = dict.fromkeys(tensor.name for step in backward.plan.steps for tensor in step.op.inputs)
    seeds = dict(gradient.seeds)
    saved = [name for name in (*inputs, *results) if name in read]
    attributes = _attributes(backward)
    grads = {name: seeds.get(name, f"_d{name}") for name in results}
    flat = [name for name in own if name not in seeds]
    call = ", ".join([*inputs, *params])
    picked = _picked(len(own), len(results))
    name = "_" + "".join(word.capitalize() for word in shown(op.name).split("_"))
    lines, needs = _backward_lines(backward, _Eager())
    apart, needs_apart = _backward_lines(backward, _Registered(namespace) if is_registered else _Apart())
    read_by_context = {*saved}.union(*(Line(value).names for _, value in attributes))
    kept = _kept(saved, attributes)
    # What is registered has its `setup_context` called as it is.
    constant = [name for name in results if name not in seeds or name not in own] if is_registered else []
    setup = [
        *unpacked([*inputs, *params], read_by_context, "inputs"),
        *unpacked(results, {*saved, *constant}, "output"),
        *kept,
        *constant_lines(constant),
    ]
    function, _, first = over_batch(op, f"{name}.apply").partition(", ")
    return {
        "in_forward": False,
        "class_name": name,
        "leading": leading(op),
        "n_results": len(own),
        "constant": tuple(own.index(name) for name in flat),
        "arguments": call,
        "call_forward": f"_{op.name}_forward({call}{', saves=True' if saves else ''})",
        "call_apart": f"_{op.name}_forward({call}{', saves=True' if saves else ''})",
        "call_plain": f"_{op.name}_forward({call}{', saves=False' if saves else ''}){picked}",
        "picked": picked,
        "targets": ", ".join(results),
        "own_results": ", ".join(own),
        "saved": ", ".join(saved),
        "unpacked": f"({saved[0]},)" if len(saved) == 1 else ", ".join(saved),
        "kept": [*kept, *constant_lines(flat)],
        "keeps_nothing": not kept and not flat and not saves,
        "requires": f"autograd.needs_gradient({', '.join(gradient.wrt)})",
        "seeds": ", ".join(grads[name] for name in own),
        "needs": needs,
        "lines": lines,
        "forwards": not saves,  # what it is called with
        "keeps": bool(setup),
        "setup": setup or ['"""Keeps nothing."""'],
        "all_seeds": ", ".join(grads.values()),
        "needs_apart": needs_apart,
        "lines_apart": apart,
        "vmap": f"{function}({first}, info, in_dims, *args)",
    }


def is_saved(op: Op, name: str) -> bool:
    return any(result.when and result.output.name == name for result in op.results)


def _attributes(backward: Backward) -> list[tuple[str, str]]:
    """What the context keeps besides tensors: params, and shapes and dtypes of inputs."""
    used = dict.fromkeys(param.name for step in backward.plan.steps for param in step.op.params)
    shapes = dict.fromkeys(name for step in backward.plan.steps for name in step.shapes)
    shapes |= dict.fromkeys(name for name, text in backward.plan.spelled.items() if f"ctx.{name}_shape" in text)
    dtypes = dict.fromkeys(name for step in backward.plan.steps for name in step.dtypes)
    inputs = {tensor.name for tensor in backward.forward.op.inputs}
    leaves = (leaf for _, dtype in backward.plan.converted.values() for leaf in dtype.of)
    dtypes |= dict.fromkeys(leaf for leaf in leaves if leaf in inputs)
    optional = {tensor.name for tensor in backward.forward.op.inputs if tensor.default is not None}
    guards = {name: f" if {name} is not None else None" for name in optional}
    return [
        *((name, name) for name in used),
        *((f"{name}_shape", f"{_shape_text(backward.forward.op, name)}{guards.get(name, '')}") for name in shapes),
        *((f"{name}_dtype", f"{name}.dtype{guards.get(name, '')}") for name in dtypes),
    ]


def _shape_text(op: Op, name: str) -> str:
    """The shape of an input, with leading axes at full length where others may have more of them."""
    counts = {t.name: len(t.type.shape) - 1 for t in op.inputs if BATCH in t.type.axes}
    others = [f"({other}, {count})" for other, count in counts.items() if other != name]
    if name not in counts or not others:
        return f"{name}.shape"
    return f"tensors.full_shape({name}, {counts[name]}, {', '.join(others)})"


def _kept(saved: list[str], attributes: list[tuple[str, str]]) -> list[str]:
    lines = [f"ctx.save_for_backward({', '.join(saved)})"] if saved else []
    return [*lines, *(f"ctx.{name} = {value}" for name, value in attributes)]


def constant_lines(names: list[str]) -> list[str]:
    return [f"ctx.mark_non_differentiable({', '.join(names)})"] if names else []


def unpacked(names: list[str], read: Container[str], source: str) -> list[str]:
    """The line that takes a tuple apart, where any of it is read; one result comes without a tuple."""
    targets = [name if name in read else f"_{name}" for name in names]
    if not any(name in read for name in names):
        return []
    if len(names) == 1:
        return [f"{targets[0]} = output" if source == "output" else f"({targets[0]},) = {source}"]
    return [f"{', '.join(targets)} = {source}"]


def _picked(own: int, count: int) -> str:
    """Of what the inner function returns, what the caller gets."""
    if own == count:
        return ""
    return "[0]" if own == 1 else f"[:{own}]"


class _Eager:
    """The backward of the class that eager autograd uses: it calls the functions of the steps."""

    fills = False  # whether a step returns something for a gradient that is not needed

    def call(self, step: Step, passed: list[str], flags: dict[str, str]) -> str:
        return f"_{step.op.name}({', '.join([*passed, *(f'{name}={text}' for name, text in flags.items())])})"


class _Apart(_Eager):
    """The backward under torch.func, to which each step is a function."""

    def call(self, step: Step, passed: list[str], flags: dict[str, str]) -> str:
        return f"call({', '.join([f'_{step.op.name}', *passed, *flags.values()])})"


@dataclass(frozen=True)
class _Registered(_Eager):
    """The backward of registered operators, which return something for each gradient."""

    namespace: str
    fills = True

    def call(self, step: Step, passed: list[str], flags: dict[str, str]) -> str:
        function = operator(self.namespace, f"_{step.op.name}")
        return f"autograd.once({', '.join([function, *passed, *flags.values()])})"


def _backward_lines(backward: Backward, way: _Eager) -> tuple[list[str], bool]:
    """The lines that call the steps and return the gradients, and whether they ask what is needed."""
    op = backward.forward.op
    inputs = [tensor.name for tensor in op.inputs]
    computed = {result.output.name for step in backward.plan.steps for result in step.op.results}
    alone = len(backward.plan.steps) == 1 and all(_own(text) in computed for text in backward.plan.spelled.values())
    made = computed | {*backward.plan.converted}
    lines: list[str] = []
    optional: set[str] = set()  # results of steps that are not always there
    together: set[str] = set()  # results that come with others, whether or not they are asked for
    for name, (seed, dtype) in backward.plan.converted.items():
        condition = _needed(backward, name, inputs)
        lines += [f"{name} = None", f"if {condition}:", f"    {name} = {seed}.to({_dtype_text(dtype, op.inputs)})"]
    for step in backward.plan.steps:
        names = [result.output.name for result in step.op.results]
        needed = {own: _needed(backward, own, inputs) for own in names}
        flags = {r.when: needed[r.output.name] for r in step.op.results if r.when}
        optional |= {r.output.name for r in step.op.results if r.when}
        together |= set(names) if step.family.steps(step.program) else set()
        passed = [*(tensor.name for tensor in step.op.inputs), *(f"ctx.{param.name}" for param in step.op.params)]
        passed += [f"ctx.{name}_shape" for name in step.shapes] + [f"ctx.{name}_dtype" for name in step.dtypes]
        call = f"{', '.join(names)} = {way.call(step, passed, flags)}"
        if alone:
            lines.append(call)
            continue
        condition = " or ".join(dict.fromkeys(" or ".join(needed.values()).split(" or ")))
        between = [tensor.name for tensor in step.op.inputs if tensor.name in made]
        if between:
            needs = f"({condition})" if " or " in condition else condition
            condition = " and ".join([*(f"{name} is not None" for name in between), needs])
        lines += [f"{' = '.join(names)} = None", f"if {condition}:", f"    {call}"]
    returned = []
    for place, tensor in enumerate(op.inputs):
        text = backward.plan.spelled.get(tensor.name, "None")
        own = _own(text)
        shared = _needed(backward, own, inputs) != f"needs[{place}]" or own not in optional or own in together
        absent = tensor.default is not None and shared  # An input that is not there has no gradient.
        is_none = text != own and (own in optional or (own in computed and not alone))  # where it is not needed
        filled = way.fills and own in optional
        is_asked = tensor.name in backward.plan.spelled and (absent or is_none or filled)
        returned.append(f"{text} if needs[{place}] else None" if is_asked else text)
    returned += ["None"] * len(op.params)
    *before, last = lines or [""]
    target, _, call = last.partition(" = ")
    result = ", ".join(returned)
    lines = [*before, f"return {call}"] if target == result else [*lines, f"return {result}"]
    return lines, any("needs[" in line for line in lines)


def _dtype_text(dtype: Dtype, inputs: Sequence[Input]) -> str:
    """The dtype, by what the context keeps: None as the dtype of an input that was left out."""
    optional = {tensor.name: tensor.default is not None for tensor in inputs}
    kept = {leaf: f"ctx.{leaf}_dtype" for leaf in dtype.of if leaf in optional}
    absent = {leaf: f"*(() if {text} is None else ({text},))" for leaf, text in kept.items() if optional[leaf]}
    leaves = [{**kept, **absent}.get(leaf, f"torch.{leaf}") for leaf in dtype.of]
    return leaves[0] if len(leaves) == 1 and not absent else f"dtypes.promote({', '.join(leaves)})"


def _needed(backward: Backward, own: str, inputs: list[str]) -> str:
    """Whether any gradient is needed that a result of a step is for."""
    users = _users(backward, own)
    return " or ".join(f"needs[{inputs.index(name)}]" for name in backward.plan.spelled if name in users)


def _users(backward: Backward, own: str) -> set[str]:
    """The inputs whose gradients are made of a result of a step: by the host, or by steps that need it if called."""
    plan = backward.plan
    readers = [step for step in plan.steps if own in {tensor.name for tensor in step.op.inputs}]
    later = (_users(backward, result.output.name) for step in readers for result in step.op.results)
    return {name for name, text in plan.spelled.items() if _own(text) == own}.union(*later)


def _own(text: str) -> str:
    """The name of the gradient that an expression of the host is made of."""
    return text.partition("[")[0].partition(".")[0]
