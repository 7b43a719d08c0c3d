"""A forward and its backward -> what the subclasses of torch.autograd.Function say."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from ..emit.host import by_presence
from ..emit.registration import leading, operator
from ..lang.ir import Dtype, Op
from ..lang.names import shown
from ..nest.ir import Line
from ..plan.backward import Backward
from ..spec.types import BATCH, Input


def class_view(
    backward: Backward, namespace: str, saves: bool, inline: Mapping[str, tuple[str, ...]]
) -> dict[str, Any]:
    """What the class of an operator says, its `setup_context`, `backward` and rule of vmap.

    The namespace is that of a registered operator, "" of others. With `saves`, the forward is told whether to save.
    Steps that are `inline` are calls of another function, which comes with its arguments.
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
    call = ", ".join([*inputs, *params])
    picked = _picked(len(own), len(results))
    name = "_" + "".join(word.capitalize() for word in shown(op.name).split("_"))
    lines, needs = _backward_lines(backward, namespace, inline)
    read_by_context = {*saved}.union(*(Line(value).names for _, value in attributes))
    # What is saved besides is a result of what is registered.
    constant = [name for name in results if name not in seeds and (is_registered or name in own)]
    is_alone = bool(constant) and not is_registered and len(constant) == len(own) - 1
    setup = [
        *unpacked([*inputs, *params], read_by_context, "inputs"),
        *unpacked(results, {*saved, *constant}, "output"),
        *_kept(saved, attributes),
        *([f"autograd.constant(ctx, {', '.join(constant)})"] if is_alone else constant_lines(constant)),
    ]
    (seed,) = [grads[name] for name in own if name in seeds] if is_alone else ("",)
    n_extra = len(results) - len(own)
    return {
        "in_forward": False,
        "class_name": name,
        "n_results": len(own),
        "arguments": call,
        "call_apart": f"_{op.name}_forward({call}{', saves=True' if saves else ''})",
        "call_plain": f"_{op.name}_forward({call}{', saves=False' if saves else ''}){picked}",
        "call": "call_and_save" if picked else "call",
        "picked": picked,
        "saved": ", ".join(saved),
        "unpacked": f"({saved[0]},)" if len(saved) == 1 else ", ".join(saved),
        "requires": f"autograd.needs_gradient({', '.join(gradient.wrt)})",
        "all_seeds": ", ".join([*(grads[name] for name in own), *(["*_"] if n_extra else [])]),
        "forwards": not saves,  # what it is called with
        "setup": setup,
        "alone": seed,
        "no_gradients": ", ".join(["None"] * (len(inputs) + len(params))),
        "needs_apart": needs,
        "lines_apart": lines,
        **base_view(op),
    }


def base_view(op: Op) -> dict[str, str]:
    """The class that an operator's is derived from, by what torch.func.vmap calls, and what that needs to know."""
    named = leading(op)
    return {"base": "BatchedOperator" if named else "Operator", "named": named}


def is_saved(op: Op, name: str) -> bool:
    return any(result.when and result.output.name == name for result in op.results)


def _attributes(backward: Backward) -> list[tuple[str, str]]:
    """What the context keeps besides tensors: params, and shapes and dtypes of inputs."""
    used = dict.fromkeys(param.name for step in backward.plan.steps for param in step.op.params)
    shapes = dict.fromkeys(name for step in backward.plan.steps for name in step.shapes)
    shapes |= dict.fromkeys(name for name, text in backward.plan.spelled.items() if f"ctx.{name}_shape" in text)
    dtypes = dict.fromkeys(name for step in backward.plan.steps for name in step.dtypes)
    inputs = {tensor.name for tensor in backward.forward.op.inputs}
    leaves = (leaf for _, dtype in backward.plan.converted.values() for leaf in dtype.leaves)
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


def _backward_lines(
    backward: Backward, namespace: str, inline: Mapping[str, tuple[str, ...]]
) -> tuple[list[str], bool]:
    """The lines that call the steps and return the gradients, and whether they ask what is needed.

    The steps are functions, or operators registered in a namespace, which return something for each gradient.
    """
    op = backward.forward.op
    inputs = [tensor.name for tensor in op.inputs]
    dtypes = {result.output.name: result.dtype for step in backward.plan.steps for result in step.op.results}
    computed = dtypes.keys()
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
        made_by = dtypes if namespace else {}
        passed = [_passed(one, made_by.get(one.name), inputs) for one in step.op.inputs]
        passed += [f"ctx.{param.name}" for param in step.op.params]
        passed += [f"ctx.{name}_shape" for name in step.shapes] + [f"ctx.{name}_dtype" for name in step.dtypes]
        function = operator(namespace, f"_{step.op.name}") if namespace else f"_{step.op.name}"
        called = inline.get(step.op.name, (function, *passed, *flags.values()))
        call = f"{', '.join(names)} = autograd.once({', '.join(called)})"
        if alone:
            lines.append(call)
            continue
        condition = " or ".join(dict.fromkeys(" or ".join(needed.values()).split(" or ")))
        between = [one.name for one in step.op.inputs if one.name in made and one.default is None]
        if between:
            needs = f"({condition})" if " or " in condition else condition
            condition = " and ".join([*(f"{name} is not None" for name in between), needs])
        line = f"{call} if {condition} else None"
        fits = len(names) == 1 and len(shown(line)) + 8 <= 88  # in the backward of a class
        lines += [line] if fits else [f"{' = '.join(names)} = None", f"if {condition}:", f"    {call}"]
    returned = []
    for place, tensor in enumerate(op.inputs):
        text = backward.plan.spelled.get(tensor.name, "None")
        own = _own(text)
        shared = _needed(backward, own, inputs) != f"needs[{place}]" or own not in optional or own in together
        absent = tensor.default is not None and shared  # An input that is not there has no gradient.
        is_none = text != own and (own in optional or (own in computed and not alone))  # where it is not needed
        filled = bool(namespace) and own in optional
        is_asked = tensor.name in backward.plan.spelled and (absent or is_none or filled)
        returned.append(f"{text} if needs[{place}] else None" if is_asked else text)
    returned += ["None"] * len(op.params)
    *before, last = lines or [""]
    target, _, call = last.partition(" = ")
    result = ", ".join(returned)
    lines = [*before, f"return {call}"] if target == result else [*lines, f"return {result}"]
    return lines, any("needs[" in line for line in lines)


def _passed(tensor: Input, dtype: Dtype | None, inputs: list[str]) -> str:
    """A tensor as a step is passed it. A registered operator that made it, with a dtype, returns no None for a gradient
    by an input that was left out, but an empty tensor.
    """
    if dtype is None or tensor.default is None:
        return tensor.name
    return f"{tensor.name} if needs[{inputs.index(dtype.of[0])}] else None"


def _dtype_text(dtype: Dtype, inputs: Sequence[Input]) -> str:
    """The dtype, by what the context keeps: None as the dtype of an input that was left out."""
    optional = {tensor.name: tensor.default is not None for tensor in inputs}
    parts = {leaf: f"ctx.{leaf}_dtype" if leaf in optional else f"torch.{leaf}" for leaf in dtype.leaves}
    absent = {leaf: f"{text} is None" for leaf, text in parts.items() if optional.get(leaf)}
    return by_presence(dtype, parts, absent)


def _needed(backward: Backward, own: str, inputs: list[str]) -> str:
    """Whether any gradient is needed that a result of a step is for."""
    users = users_of(backward, own)
    return " or ".join(f"needs[{inputs.index(name)}]" for name in backward.plan.spelled if name in users)


def users_of(backward: Backward, own: str) -> set[str]:
    """The inputs whose gradients are made of a result of a step: by the host, or by steps that need it if called."""
    plan = backward.plan
    readers = [step for step in plan.steps if own in {tensor.name for tensor in step.op.inputs}]
    later = (users_of(backward, result.output.name) for step in readers for result in step.op.results)
    return {name for name, text in plan.spelled.items() if _own(text) == own}.union(*later)


def _own(text: str) -> str:
    """The name of the gradient that an expression of the host is made of."""
    return text.partition("[")[0].partition(".")[0]
