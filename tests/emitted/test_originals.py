"""A reference that is imported is compared with where it is installed, and is not needed elsewhere."""

from __future__ import annotations

from pathlib import Path

from tests.harness.importing import emitted_tests, written
from tritongen.spec.read import read_spec

SPEC = """
[op]
name = "{name}"
[inputs]
x = "float[..., N]"
w = "float[N]"
[compute]
y = "x * rsqrt(mean(x * x, N) + 1e-6) * w"
[outputs]
y = "x"
[grad]
wrt = ["x", "w"]
[reference]
from = "{module}"
torch = "{call}"
"""
NORM = "torch.func.functional_call({name}(x.shape[-1], eps=1e-6), {{'weight': {w}}}, x)"
CASES = {
    "as_a_module": ("torch.nn", NORM.format(name="RMSNorm", w="w")),
    "with_a_cast": ("torch.nn.functional", "rms_norm(x.float(), (x.shape[-1],), w, 1e-6).to(x.dtype)"),
    "of_another": ("torch.nn", NORM.format(name="RMSNorm", w="w + 1")),
    "not_installed": ("tritongen_has_no_such_module", "norm(x, w)"),
    "refused": ("torch.nn.functional", "rms_norm(x, (64,), w)"),
}


def test_originals(tmp_path: Path) -> None:
    for name, (module, call) in CASES.items():
        written(read_spec(f"{name}.toml", SPEC.format(name=name, module=module, call=call)), tmp_path)
    done = emitted_tests(tmp_path, "-k", "test_original")
    assert "FAILED of_another/" in done.stdout
    assert "1 failed, 2 passed, 2 skipped" in done.stdout, done.stdout[-3000:]
