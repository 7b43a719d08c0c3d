"""Functions and modules that others wrote: of torch by their names and by the samples of its OpInfos, of packages."""

from __future__ import annotations

import importlib
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

from tritongen.importing.run import Result, imported, imported_target
from tritongen.importing.targets import Example, Length, Target, parse_words
from tritongen.importing.values import dtype_name

HERE = Path(__file__).parent
PACKAGES = ("transformers", "timm", "torchvision")
_NAMES = "x y z u v w a b c d e f g h".split()


@dataclass(frozen=True, slots=True)
class Case:
    """What is imported, under a name; `package` is what has to be installed for it."""

    name: str
    package: str
    target: str
    example: str
    make: Callable[[], Result]


def read_cases(path: Path) -> Iterator[Case]:
    """The cases of a file with lines of `target | example | init`, but for those of files beside it."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#") and ".py:" not in line:
            yield _case(*line.split(" | "))


def _case(target: str, example: str, init: str = "") -> Case:
    home, _, name = target.partition(":")
    package = home.partition(".")[0]

    def make() -> Result:
        require(package)
        return imported(target, parse_words(init), example)

    return Case(name + (f"({init})" if init else ""), package, target, example, make)


def opinfo_cases() -> Iterator[Case]:
    for line in (HERE / "opinfo.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield opinfo_case(*line.split("/"))


def opinfo_case(name: str, variant: str = "") -> Case:
    def make() -> Result:
        require("expecttest")
        target, given = sampled_target(name, variant)
        return imported_target(target, given)

    return Case(f"{name}/{variant}".rstrip("/"), "torch", f"OpInfo {name}", "", make)


def require(package: str) -> None:
    """Skips the test where a package is not installed."""
    if package in PACKAGES:
        _declare_operators_of_torchvision()
    pytest.importorskip(package)


def _declare_operators_of_torchvision() -> None:
    """So that a wheel of torchvision whose operators are of another build of torch can be imported, without them."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    globals().setdefault("_libraries", []).append(library)


def sampled_target(name: str, variant: str = "") -> tuple[Target, dict[str, Example | object]]:
    """An operator of torch as a function of the tensors of its first usual sample, and an example of them."""
    op = next(one for one in _opinfos() if (one.name, one.variant_test_name) == (name, variant))
    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    samples = [one for one in op.sample_inputs("cpu", dtype, requires_grad=False) if _is_usual(one, 1)]
    sample = next((one for one in samples if _is_usual(one, 2)), samples[0])
    flat, shape = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [place for place, one in enumerate(flat) if isinstance(one, torch.Tensor)]
    given: dict[str, Example | object] = {
        name: Example(dtype_name(flat[place].dtype), tuple(map(Length, flat[place].shape)))
        for name, place in zip(_NAMES, places, strict=False)
    }

    def called(**tensors: torch.Tensor) -> Any:
        filled = list(flat)
        for place, tensor in zip(places, tensors.values(), strict=True):
            filled[place] = tensor
        input, args, kwargs = pytree.tree_unflatten(filled, shape)
        return op.op(input, *args, **kwargs)

    return Target(name, f"OpInfo {name}", name.replace(".", "_").strip("_"), called), given


def _opinfos() -> list[Any]:
    found: list[Any] = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    return found


def _is_usual(sample: Any, least: int) -> bool:
    """Whether the tensors of a sample have elements, and dimensions of some length at `least`."""
    leaves = pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
    tensors = [one for one in leaves if isinstance(one, torch.Tensor)]
    return bool(tensors) and tensors[0].ndim > 0 and all(length >= least for one in tensors for length in one.shape)


def shown_cases(page: str) -> Iterator[tuple[Case, str]]:
    """Those whose specs are on a page, by the commands with which they begin, and these specs."""
    for text in re.findall(r"```toml\n(.*?)```", page, re.DOTALL):
        target, *words = shlex.split(text.partition("\n")[0])[3:]
        options = list(zip(words[::2], words[1::2], strict=True))
        inits = " ".join(value for name, value in options if name == "--init")
        yield _case(target, dict(options)["--example"], inits), text


def corpus() -> list[Case]:
    """All of it."""
    return [
        *read_cases(HERE.parent / "cases.txt"),
        *read_cases(HERE / "packages.txt"),
        *opinfo_cases(),
    ]


os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")
