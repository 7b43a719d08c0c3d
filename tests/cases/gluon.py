"""Specs of attention, and their Gluon kernels: launched on Hopper, and emulated elsewhere."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.harness import emulated_gluon
from tests.harness.importing import built, runtime_of
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec
from tritongen.spec.types import Spec

IS_HOPPER = torch.cuda.is_available() and not torch.version.hip and torch.cuda.get_device_capability()[0] == 9
DEVICE = "cuda" if IS_HOPPER else "cpu"
HALF = torch.bfloat16 if IS_HOPPER else torch.float16  # of which interpreters of plain kernels know more

QKV = 'q = "T[..., M, D]"\nk = "T[..., N, D]"\nv = "T[..., N, E]"'
MEAN = 'o = "sum(softmax(s, N) * v, N)"'
CAUSAL = f's = "where(index(N) <= index(M), sum(q * k, D) * scale, -inf)"\n{MEAN}'
GROUPED = 'q = "T[..., (G R), M, D]"\nk = "T[..., G, N, D]"\nv = "T[..., G, N, E]"'
POSITIONS_FIRST = 'q = "T[B, M, (G R), D]"\nk = "T[B, N, G, D]"\nv = "T[B, N, G, E]"'
OF_HEADS = QKV.replace("...", "..., H")
SLOPES = CAUSAL.replace("* scale", "* scale - slope * (index(M) - index(N))")
SINK = f"""{CAUSAL.partition(MEAN)[0]}m = "maximum(max(s, N), sink)"
o = "sum(exp(s - m) * v, N) / (sum(exp(s - m), N) + exp(sink - m))\""""
DOCUMENTS = f'{QKV}\nof_q = "int32[..., M]"\nof_k = "int32[..., N]"'
LENGTHS = f'limit = "length + 1"\n{CAUSAL.replace("index(N) <=", "(index(N) < limit) & (index(N) <=")}'
LENGTHS = LENGTHS.replace("index(M),", "index(M)),")
COLUMNS = CAUSAL.replace("* scale", "* scale * temper + bias")
GRADIENT = '[grad]\nwrt = ["q", "k", "v"]'
LOG = '\nlse = "logsumexp(s, N)"'


def spec_of(
    compute: str = CAUSAL,
    inputs: str = QKV,
    outputs: str = 'o = "q"',
    params: str = 'scale = { type = "float" }',
    kind: str = "float",
    more: str = "",
) -> Spec:
    head = f'[op]\nname = "attend"\nsummary = "Attends."\n[types]\nT = "{kind}"\n'
    text = f"{head}[inputs]\n{inputs}\n[params]\n{params}\n[compute]\n{compute}\n[outputs]\n{outputs}\n{more}"
    return read_spec("attend.toml", text)


def kernel_of(spec: Spec) -> str:
    """The text of the Gluon kernel, "" where there is none."""
    return generate(spec).get("gluon_kernels.py", "")


def some(cases: list[Any], *places: int) -> list[Any]:
    return cases if IS_HOPPER else [cases[place] for place in places]


def launching(spec: Spec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, list[str]]:
    """An operator, and the kernels that it launches. Those in Gluon are emulated where there is no Hopper."""
    operator = built(spec, folder)
    return operator, launched(operator, monkeypatch)


def launched(operator: ModuleType, monkeypatch: pytest.MonkeyPatch, rules: str = "streaming_heuristics") -> list[str]:
    """The kernels that an operator launches from now on, by rules that ask for the capability of the device."""
    names: list[str] = []
    launch: Any = importlib.import_module(runtime_of(operator, "launch").__name__)
    run = launch.launched

    def spy(kernel: Any, grid: Any, args: Any, options: Any, *given: Any) -> Any:
        names.append(kernel.__name__)
        if kernel.__name__.endswith("_gluon_kernel") and not IS_HOPPER:
            return emulated_gluon.launch(kernel, grid, args, options)
        return run(kernel, grid, args, options, *given)

    monkeypatch.setattr(launch, "launched", spy)
    if not IS_HOPPER:
        monkeypatch.setattr(runtime_of(operator, rules), "capability", lambda _: (9, 0))
    return names


def masked_scores(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of rows and what they attend to, and values, in float64; those that heads of a group share for each."""
    in_group = q.shape[-3] // k.shape[-3]
    every_k, every_v = (one.double().repeat_interleave(in_group, -3) for one in (k, v))
    s = q.double() @ every_k.mT * scale
    rows, cols = (torch.arange(n, device=q.device) for n in s.shape[-2:])
    return s.masked_fill(cols > rows[:, None], -torch.inf), every_v


def check(
    operator: ModuleType, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, heads: int = -3
) -> None:
    """Twice, since the second call launches what the first compiled."""
    s, every_v = masked_scores(q.movedim(heads, -3), k.movedim(heads, -3), v.movedim(heads, -3), scale)
    tolerance = 2e-2 if q.dtype == torch.bfloat16 else 3e-3
    for _ in range(2 if IS_HOPPER else 1):
        o, lse = (one.movedim(heads + dim, -3 + dim) for dim, one in enumerate(operator.attend(q, k, v, scale=scale)))
        torch.testing.assert_close(o.double(), torch.softmax(s, -1) @ every_v, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(lse.double(), torch.logsumexp(s, -1), rtol=1e-4, atol=1e-4)


def drawn(*sizes: tuple[int, int], dtype: torch.dtype = HALF) -> list[torch.Tensor]:
    """Matrices of 2 x 3 heads."""
    random = torch.Generator().manual_seed(0)
    return [torch.randn((2, 3, *size), generator=random).to(DEVICE, dtype) for size in sizes]


BIAS = CAUSAL.replace("* scale", "* scale + bias")
