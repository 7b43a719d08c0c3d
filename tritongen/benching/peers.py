"""Functions of other packages that compute the same as operators of the gallery.

A row applies to any operator of its name. Its results are checked before it is timed, so that for an operator with
other math the peer fails, instead of having an incorrect figure.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

Function = Callable[..., Any]


def _direct(function: Function, *tensors: Any, **params: Any) -> Any:
    return function(*tensors, **params)


@dataclass(frozen=True)
class Row:
    """A function by its path in the package, and its call with an operator's inputs and params.

    `given` computes additional arguments from the inputs once, and is not measured.
    """

    path: str
    call: Callable[..., Any] = _direct
    given: Callable[..., tuple[Any, ...]] | None = None
    compiled: bool = False


@dataclass(frozen=True)
class Package:
    """A package and its rows by the names of operators. Without `gradients` it is not measured backward."""

    name: str  # in tables
    distribution: str
    module: str
    rows: Mapping[str, Row]
    gradients: bool = False
    home: str = ""  # the module of its functions, if it is not `module`

    @property
    def installed(self) -> bool:
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:  # The parent package is not installed.
            return False

    @property
    def version(self) -> str:
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "of unknown version"


def _rows(names: str, call: Callable[..., Any] = _direct) -> dict[str, Row]:
    """Rows of operators that have the same names as the functions."""
    return {name: Row(name, call) for name in names.split()}


def _last(function: Function, x: Any) -> Any:
    """Call a function along the last axis."""
    return function(x, -1)


def _last_of_list(function: Function, x: Any) -> Any:
    return function(x, [-1])


def _written(logits: Any) -> Any:
    """Logits that a loss can overwrite with their gradient: a copy if they require one."""
    return logits.clone() if logits.requires_grad else logits


def _causal(q: Any, k: Any, v: Any, *, scale: float) -> tuple[Any, ...]:
    """The block mask of FlexAttention."""
    from torch.nn.attention.flex_attention import create_block_mask

    return (create_block_mask(lambda b, h, m, n: n <= m, None, None, q.shape[-2], k.shape[-2], q.device.type),)


def _flash(function: Function, q: Any, k: Any, v: Any, blocks: Any, *, scale: float) -> Any:
    return function(q, k, v, block_mask=blocks, scale=scale, kernel_options={"BACKEND": "FLASH"})


LIGER = {
    "softmax": Row("liger_softmax"),
    "layer_norm": Row("liger_layer_norm", lambda f, x, weight, bias: f(x, weight, bias, 1e-5)),
    "rms_norm": Row("liger_rms_norm", lambda f, x, weight: f(x, weight, 1e-6, in_place=False)),
    "fused_add_rms_norm": Row("liger_fused_add_rms_norm", lambda f, x, r, w: f(x, r, w, 1e-6, in_place=False)),
    "swiglu": Row("liger_swiglu", lambda f, x, gate: f(gate.view(-1, 4096), x.view(-1, 4096)).view(x.shape)),
    "cross_entropy": Row("liger_cross_entropy", lambda f, x, target: f(_written(x), target, reduction="none")),
}
FLAG_GEMS = {
    **_rows("gelu silu relu sigmoid tanh elu selu softplus mul mse_loss tril triu addmm outer"),
    **_rows("softmax log_softmax", lambda f, x: f(x, -1, False)),
    "vector_add": Row("add"),
    "where": Row("where_self"),
    "lerp": Row("lerp_tensor"),
    "fma": Row("addcmul", lambda f, a, b, c: f(c, a, b)),
    "clamp": Row("clamp", lambda f, x, lower, upper: f(x, lower, upper)),
    "masked_fill": Row("masked_fill", lambda f, x, mask, value: f(x, mask, value)),
    "nan_to_num": Row("nan_to_num", lambda f, x: f(x, 0.0)),
    "sum": Row("sum_dim", _last_of_list),
    "mean": Row("mean_dim", _last_of_list),
    "var": Row("var_dim", _last_of_list),
    "amax": Row("amax", _last_of_list),
    "l2_norm": Row("vector_norm", lambda f, x: f(x, 2, [-1])),
    "any": Row("any_dim", _last),
    "all": Row("all_dim", _last),
    "rms_norm": Row("rms_norm", lambda f, x, weight: f(x, weight.shape, weight, 1e-6)),
    "layer_norm": Row("layer_norm", lambda f, x, weight, bias: f(x, weight.shape, weight, bias, 1e-5)[0]),
    "swiglu": Row("silu_and_mul", lambda f, x, gate: f(gate, x)),
    "geglu": Row("gelu_and_mul", lambda f, x, gate: f(gate, x)),
    "cross_entropy": Row("cross_entropy_loss", lambda f, x, target: f(x, target, reduction="none")),
    "matmul": Row("mm"),
    "batched_matmul": Row("bmm"),
    "matvec": Row("mv"),
}
QUACK = {
    "softmax": Row("softmax.softmax"),
    "rms_norm": Row("rmsnorm.rmsnorm", lambda f, x, weight: f(x, weight, eps=1e-6)),
    "cross_entropy": Row("cross_entropy.cross_entropy", lambda f, x, target: f(x, target, reduction="none")),
}
# Pretuned kernels are not in Helion's wheel, but in the folder of that name of its repository.
HELION = {
    "vector_add": Row("vector_add.vector_add.vector_add"),
    "softmax": Row("softmax.softmax.softmax"),
    "rms_norm": Row("rms_norm.rms_norm.rms_norm", lambda f, x, weight: f(x, weight, 1e-6)),
    "layer_norm": Row("layer_norm.layer_norm.layer_norm"),
}
PACKAGES = (
    Package("liger", "liger-kernel", "liger_kernel.transformers.functional", LIGER, gradients=True),
    Package("flag_gems", "flag_gems", "flag_gems", FLAG_GEMS),
    Package("helion", "helion", "pretuned_kernels", HELION),
    Package("quack", "quack-kernels", "quack", QUACK, gradients=True),
    Package(
        "flex_attention_flash",
        "flash-attn-4",
        "flash_attn.cute",
        {"attention": Row("flex_attention", _flash, _causal, compiled=True)},
        gradients=True,
        home="torch.nn.attention.flex_attention",
    ),
)


def with_peers(op: str, benchmark: Any, backward: bool, packages: Iterable[Package] = PACKAGES) -> Any:
    """The benchmark of an operator with the functions of installed packages as additional peers."""
    peer = type(benchmark.compared["torch"])
    found = {
        one.name: peer(_function(one, row), row.given, compiled=row.compiled)
        for one in packages
        if (row := one.rows.get(op)) and one.installed and (one.gradients or not backward)
    }
    return replace(benchmark, peers={**benchmark.peers, **found})


def _function(package: Package, row: Row) -> Function:
    """A callable for a row. If its function cannot be imported, each call raises the error."""
    module, _, name = f"{package.home or package.module}.{row.path}".rpartition(".")
    try:
        return partial(row.call, getattr(importlib.import_module(module), name))
    except Exception as error:  # Any exception of an import is the package's failure.
        return partial(_failed, error)


def _failed(error: Exception, *tensors: Any, **params: Any) -> Any:
    raise error


def versions(ops: Iterable[str], packages: Iterable[Package] = PACKAGES) -> dict[str, str]:
    """The packages with a function for one of `ops`: as "peers" the installed ones with versions, else their names."""
    wanted = [one for one in packages if not one.rows.keys().isdisjoint(ops)]
    here = ", ".join(f"{one.name} {one.version}" for one in wanted if one.installed)
    missing = ", ".join(one.name for one in wanted if not one.installed)
    return {key: names for key, names in (("peers", here), ("not installed", missing)) if names}
