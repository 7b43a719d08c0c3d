"""Memory of what is stored between steps: it is free where nothing reads it any more."""

from __future__ import annotations

import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.cases.step_cases import CASES, Case
from tests.harness.importing import built
from tests.harness.oracles import DEVICE

F = torch.nn.functional
DEEP = Case(
    "x:M, K; w:N, K; v:K, N",
    "a = relu(sum(x * w, K))\nb = relu(sum(a * v, N))\nc = relu(sum(b * w, K))\ny = sum(c * v, N)",
    lambda x, w, v: F.relu(F.relu(F.relu(x @ w.T) @ v.T) @ w.T) @ v.T,
)


def drawn(case: Case) -> list[torch.Tensor]:
    return [tensor.to(DEVICE) for tensor in case.tensors(torch.float32)]


class Memory(TorchDispatchMode):
    """The most bytes at once of what is allocated in it, of tensors of more than one axis."""

    def __init__(self) -> None:
        super().__init__()
        self.most, self.now = 0, 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if isinstance(found, torch.Tensor) and found.dim() > 1 and "empty" in str(func):
            size = found.untyped_storage().nbytes()
            self.now += size
            self.most = max(self.most, self.now)
            weakref.finalize(found, self.freed, size)
        return found

    def freed(self, size: int) -> None:
        self.now -= size


def test_what_was_read_last_is_freed(tmp_path: Path) -> None:
    """Of three layers in a row, no more than two are there at once."""
    given = drawn(DEEP)
    function = built(DEEP.spec(), tmp_path).steps
    layer = max(given[0].numel(), given[0].shape[0] * given[1].shape[0]) * 4
    with torch.no_grad(), Memory() as memory:
        function(*given)
    assert memory.most <= 2 * layer


def test_gradients_are_freed_on_the_way(tmp_path: Path) -> None:
    case = DEEP
    given = [one.requires_grad_() for one in drawn(case)]
    y = built(case.spec(), tmp_path).steps(*given)
    layer = max(given[0].numel(), given[0].shape[0] * given[1].shape[0]) * 4
    weight = given[1].numel() * 4
    with Memory() as memory:
        torch.autograd.grad(y, given, torch.ones_like(y))
    assert memory.most <= 3 * layer + 4 * weight


def test_elements_are_mapped_where_they_lie(tmp_path: Path) -> None:
    """Where nothing else reads them: the sum of a matmul, and what is made of it line by line, are one tensor."""
    case = replace(CASES["mlp_line_by_line"], wrt="-")
    given = drawn(case)
    with Memory() as memory:
        y = built(case.spec(), tmp_path).steps(*given)
    torch.testing.assert_close(y, case.torch(*given), rtol=1e-4, atol=1e-4)  # type: ignore[arg-type]
    assert memory.most == y.untyped_storage().nbytes()


def test_elements_that_are_searched_for_tiles_stay_as_they_are(tmp_path: Path) -> None:
    """Kernels that are timed run many times."""
    case = replace(CASES["mlp_line_by_line"], wrt="-", schedule="fuse = false\nautotune = true")
    given = drawn(case)
    with Memory() as memory:
        y = built(case.spec(), tmp_path).steps(*given)
    assert memory.most == 2 * y.untyped_storage().nbytes()


def test_what_is_read_elsewhere_is_not_written_over(tmp_path: Path) -> None:
    """Elements that are taken from other places, and lines that are returned or read again."""
    case = Case(
        "x:M, K; w:N, K",
        "h = sum(x * w, K)\nz = take(h, size(M) - 1 - index(M), M) + 1\nv = h * 2\ny = v + h",
        lambda x, w: ((x @ w.T).flip(0) + 1, 3 * (x @ w.T)),
        "z y",
        "-",
        "fuse = false",
    )
    given = drawn(case)
    for one, other in zip(built(case.spec(), tmp_path).steps(*given), case.torch(*given), strict=True):  # type: ignore[call-overload]
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
