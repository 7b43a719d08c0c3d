"""Names that the generator invents: those of values that passes make, and those that modules derive from tensors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tritongen.emit import hygiene
from tritongen.lang.names import MARK
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
# Whatever a pass calls a value after another: `fresh(f"{value.name}_sum", taken)`.
_INVENTED = re.compile(r'(?:fresh|numbered)\(\s*f"[^"]*\}(_[a-z_]+)"')
# These name variables of kernels, not values.
_OF_KERNELS = {"_carry", "_decay"}
SPECS = (
    "rms_norm",
    "layer_norm",
    "softmax",
    "cross_entropy",
    "attention",
    "linear_gelu",
    "rope",
    "embedding",
    "cumsum",
)


def test_values_have_no_names_that_modules_derive_from_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor `z_mean` has row strides `z_mean_rows` on the host, so no value may be called so after `z_mean`."""
    derived: set[str] = set()
    made = hygiene._made

    def collected(blocks: list[hygiene._Block], spec: dict[str, str]) -> dict[str, str]:
        words = (word for block in blocks for word in block.variables)
        derived.update(found[1] for word in words if (found := re.fullmatch(f".*{MARK}(_[a-z_]+)", word)))
        return made(blocks, spec)

    monkeypatch.setattr(hygiene, "_made", collected)
    for path in (ROOT / "specs" / f"{name}.toml" for name in SPECS):
        if path.exists():
            generate(read_spec(path.name, path.read_text(encoding="utf-8")), ".")
    derived |= {"_rows", "_cols", "_row", "_col", "_ptr", "_part", "_mask", "_desc", "_tile", "_shape", "_dtype"}
    texts = (path.read_text(encoding="utf-8") for path in (ROOT / "tritongen").rglob("*.py"))
    invented = {suffix for text in texts for suffix in _INVENTED.findall(text)} - _OF_KERNELS
    assert {"_sum", "_dot", "_terms"} <= invented
    of_values = {"_sum", "_dot", "_exact", "_kept", "_taken"}  # that modules show because values are called so
    assert not (derived & invented) - of_values
