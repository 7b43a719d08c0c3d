"""An account -> the data that `tritongen plan --format json` prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from .account import Account
from .count import StepCost, Tensor


def as_data(account: Account) -> dict[str, Any]:
    """The account as JSON data, without units; axes keep their order, so that equal specs give equal text."""
    return {
        "name": account.name,
        "summary": account.summary,
        "device": account.device.name,
        "sizes": dict(account.lengths),
        "forward": [_step(step) for step in account.forward],
        "backward": [_step(step) for step in account.backward],
        "in_forward": account.in_forward,
        "without_kernel": dict(account.without_kernel),
        "stored_scores": [{"for": title, "axes": list(one.axes), "why": one.why} for title, one in account.stored],
    }


def _step(step: StepCost) -> dict[str, Any]:
    return {
        "number": step.number,
        "function": step.function,
        "family": step.family,
        "math": list(step.math),
        "reads": [_tensor(tensor) for tensor in step.reads],
        "writes": [_tensor(tensor) for tensor in step.writes],
        "recomputes": list(step.recomputes),
        "kernels": [{"name": name, "for": doc} for name, doc in step.kernels],
        "bytes": step.bytes,
        "flops": step.flops,
        "operations": step.operations,
        "seconds": step.seconds,
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {**asdict(tensor), "axes": list(tensor.axes), "uses": list(tensor.uses)}
