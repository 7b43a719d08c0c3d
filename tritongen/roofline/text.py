"""An account -> the text that `tritongen plan` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from .account import Account
from .amounts import bytes_of, lengths_text, scaled, time_of
from .count import StepCost, Tensor
from .devices import LAUNCH, Device

HOST = (10e-6, 25e-6)  # seconds that a call takes on the host


def as_text(account: Account) -> str:
    """A diagram of the steps, then each with its math, tensors and costs, then the totals."""
    return "\n".join(_lines(account)) + "\n"


def _lines(account: Account) -> Iterator[str]:
    yield f"{account.name}: {account.summary}" if account.summary else account.name
    yield f"{lengths_text(account.lengths)}; {_times(account.device)}"
    yield ""
    yield from _picture(account)
    for steps in _runs(account):
        total = sum(step.seconds for step in steps)
        for step in steps:
            yield ""
            yield from _step(step, total)
    yield ""
    yield from _sums(account)


def _times(device: Device) -> str:
    article = "" if device.name[0].isdigit() else "an " if device.name[0] in "AHM" else "a "
    return f"times at the roofline of {article}{device.name}, at least {time_of(LAUNCH)} a step"


def _passes(account: Account) -> tuple[tuple[str, Sequence[StepCost]], ...]:
    second = "with gradients" if account.in_forward else "backward"
    return ("forward", account.forward), (second, account.backward)


def _runs(account: Account) -> tuple[Sequence[StepCost], ...]:
    """The steps of each run, whose total is the base of their percentages."""
    return (account.forward, account.backward) if account.in_forward else (account.steps,)


def _picture(account: Account) -> Iterator[str]:
    """A line for each step: the tensors that it reads, its number and family, and the tensors that it writes."""
    rows = [
        (_names(step.reads), f"{step.number} {step.family}", _names(step.writes), title)
        for title, steps in _passes(account)
        for step in steps
    ]
    left, middle = (max(len(row[place]) for row in rows) for place in (0, 1))
    titled = ""
    for reads, step, writes, title in rows:
        if title != titled:
            yield title
        titled = title
        yield f"  {reads:{left}} -> [{step:{middle}}] -> {writes}"
    yield from (f"  {name} = {text}" for name, text in account.without_kernel)
    for title, one in account.stored:
        yield one.sentence(title)


def _names(tensors: Iterable[Tensor]) -> str:
    return ", ".join(tensor.name for tensor in tensors)


def _step(step: StepCost, total: float) -> Iterator[str]:
    yield f"{step.number}  {step.function}: {step.family}"
    yield from (f"   {line}" for line in step.math)
    texts = [_tensor(tensor) for tensor in (*step.reads, *step.writes)]
    name, dtype, moved = (max(len(text[place]) for text in texts) for place in range(3))
    rows = [f"{one[0]:{name}}  {one[1]:{dtype}}  {one[2]:>{moved}}  {one[3]}" for one in texts]
    yield from _labelled("reads", rows[: len(step.reads)])
    yield from _labelled("writes", rows[len(step.reads) :])
    yield from _labelled("recomputes", [", ".join(step.recomputes)] if step.recomputes else [])
    width = max((len(name) for name, _ in step.kernels), default=0)
    kernels = [f"{name:{width}}  {doc}" for name, doc in step.kernels] or ["the runtime's gemm"]
    yield from _labelled("kernels", kernels)
    yield from _labelled("costs", [f"{_cost([step])}, {step.seconds / total:.0%} of total"])


def _labelled(label: str, rows: Sequence[str]) -> Iterator[str]:
    for number, row in enumerate(rows):
        yield f"   {label if number == 0 else '':12}{row}".rstrip()


def _tensor(tensor: Tensor) -> tuple[str, str, str, str]:
    notes = ["saved for the backward"] if tensor.saved else []
    if tensor.source and tensor.uses:
        notes.append(f"read by {_ranges(tensor.uses)}")
    return f"{tensor.name}[{', '.join(tensor.axes)}]", tensor.dtype, bytes_of(tensor.bytes), ", ".join(notes)


def _ranges(steps: Sequence[int]) -> str:
    return f"{'steps' if len(steps) > 1 else 'step'} {', '.join(map(str, steps))}"


def _sums(account: Account) -> Iterator[str]:
    """The total costs of forward and backward, and the tensors held in memory between steps and passes."""
    for title, steps in _passes(account):
        if steps:
            yield f"{title:16}{_count(len(steps))}, {_cost(steps)}"
    if account.backward and not account.in_forward:
        yield f"{'both':16}{_count(len(account.steps))}, {_cost(account.steps)}"
    if sum(step.seconds for step in account.forward) < HOST[1]:
        least, most = (f"{seconds * 1e6:.0f}" for seconds in HOST)
        yield f"{'host':16}not counted: a call takes {least} to {most} us on the CPU, longer than these kernels may"
    yield from _memory(account)


def _memory(account: Account) -> Iterator[str]:
    """The tensors in memory between steps, and between forward and backward."""
    held = _held(account)
    names = {tensor.name for tensor in held}
    written = [tensor for step in account.steps for tensor in step.writes if tensor.uses]
    stored = [tensor for tensor in written if not tensor.saved and tensor.name not in names]
    saved = [tensor for step in account.forward for tensor in step.writes if tensor.saved]
    for title, tensors in (("stored", stored), ("saved", saved), ("kept alive", held)):
        if tensors:
            yield f"{title:16}{_names(tensors)}: {bytes_of(sum(tensor.bytes for tensor in tensors))}"


def _held(account: Account) -> list[Tensor]:
    """The arguments and results of the forward that the backward reads, so that they stay in memory until then."""
    given = {tensor.name for step in account.forward for tensor in step.reads if not tensor.source}
    made = {(tensor.name, tensor.source) for step in account.forward for tensor in step.writes if not tensor.saved}
    read = {tensor.name: tensor for step in account.backward for tensor in step.reads}
    backward = () if account.in_forward else read.values()
    return [one for one in backward if (one.name, one.source) in made or (not one.source and one.name in given)]


def _cost(steps: Sequence[StepCost]) -> str:
    flops = sum(step.flops for step in steps)
    others = sum(step.operations for step in steps)
    operations = f", {scaled(flops)}FLOP of matmuls" if flops else ""
    operations += f", {scaled(others)}op outside matmuls" if others else ""
    return f"{bytes_of(sum(step.bytes for step in steps))}{operations}, {time_of(sum(step.seconds for step in steps))}"


def _count(number: int) -> str:
    return f"{number} step{'' if number == 1 else 's'}"
