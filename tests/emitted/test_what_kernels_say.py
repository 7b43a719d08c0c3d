"""Comments and names in kernels are true of the kernel that they stand in."""

import re
from pathlib import Path

from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

SPECS = Path(__file__).parents[2] / "specs"
MASKED_MEAN = """
[op]
name = "masked_mean"
[inputs]
x = "float[M, N]"
valid = "bool[M, N]"
[compute]
y = "sum(where(valid, x, 0.0), N) / sum(valid, N)"
[outputs]
y = "x"
"""


def kernels(name: str, edit: tuple[str, str] = ("", "")) -> dict[str, str]:
    """The kernels of a spec of the gallery, by name."""
    text = (SPECS / f"{name}.toml").read_text(encoding="utf-8").replace(*edit)
    parts = re.split(r"(?m)^def (\w+)\(", generate(read_spec(f"{name}.toml", text), "..")["kernels.py"])
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_tiles_with_the_most_blocks_come_first() -> None:
    """Under a causal mask the last queries have the most keys, and the first keys the most queries."""
    found = kernels("attention")
    forward, dk_dv = found["attention_kernel"], found["attention_backward_dk_dv_kernel"]
    assert "# The last M first" in forward
    assert "(tiles - 1 - tl.program_id(0) % tiles)" in forward
    assert "# The first N first" in dk_dv
    assert "(tl.program_id(0) % tiles)" in dk_dv


def test_order_of_tiles_is_not_explained_without_a_mask() -> None:
    found = kernels("attention", ("where(index(N) <= index(M), sum(q * k, D) * scale, -inf)", "sum(q * k, D) * scale"))
    assert not any(" first: under the mask" in text for text in found.values())


def test_cooperative_kernels_say_so() -> None:
    found = {name: text for name, text in kernels("rms_norm").items() if "mailbox_ptr" in text or "slots_ptr" in text}
    assert {*found} == {"rms_norm_cooperative_kernel", "rms_norm_backward_cooperative_kernel"}
    assert all('"""Cooperative launch: ' in text for text in found.values())


def test_count_of_a_mask_is_named_after_it() -> None:
    text = generate(read_spec("masked_mean.toml", MASKED_MEAN), "..")["kernels.py"]
    assert "n_valid = tl.sum(" in text
    assert not re.search(r"y_sum_\d", text)
