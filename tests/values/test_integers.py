"""Integers and booleans alone, and beside numbers."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.harness.importing import built
from tritongen.spec.read import read_spec


def operator(inputs: dict[str, str], lines: dict[str, str], folder: Path) -> Callable[..., object]:
    text = '[op]\nname = "integers"\nsummary = "Integers."\n'
    for table, entries in (("inputs", inputs), ("compute", lines), ("outputs", dict.fromkeys(lines, "auto"))):
        text += f"[{table}]\n" + "".join(f'{name} = "{entry}"\n' for name, entry in entries.items())
    return built(read_spec("integers.toml", text), folder).integers


def test_counts_of_booleans(tmp_path: Path) -> None:
    lines = {"kept": "count_nonzero(keep, N)", "above": "sum(keep > 0.5, N)"}
    keep = torch.tensor([[True, False, True], [False, False, False]])
    found = operator({"keep": "bool[M, N]"}, lines, tmp_path)(keep)
    torch.testing.assert_close(found, (keep.sum(1), keep.sum(1)))


def test_functions_of_a_position_among_all(tmp_path: Path) -> None:
    best = "argmax(x, M, N)"
    lines = {"e": f"exp(0.1 * square({best}))", "c": f"clamp({best}, 1, 2) / 4", "s": f"{best} << 40"}
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    at = x.argmax()
    wanted = ((0.1 * at.square()).exp(), at.clamp(1, 2) / 4, at << 40)
    torch.testing.assert_close(operator({"x": "float[M, N]"}, lines, tmp_path)(x), wanted)


def test_integers_summed_beside_normalised_rows(tmp_path: Path) -> None:
    """All digits of their sums along columns, which float32 does not have."""
    lines = {"y": "x - mean(x, N) + i", "s": "sum(i, M)"}
    x, i = torch.randn(3, 4), torch.full((3, 4), 2**24 + 1, dtype=torch.int32)
    _, s = operator({"x": "float[M, N]", "i": "int32[M, N]"}, lines, tmp_path)(x, i)
    torch.testing.assert_close(s, i.sum(0))


@pytest.mark.parametrize("declared", ["uint8", "number"])
def test_negative_numbers_beside_unsigned_integers(tmp_path: Path, declared: str) -> None:
    """Which wrap around, as in torch."""
    lines = {"w": "where(x > 1, x, -1)", "c": "clamp(x, -2, 1)", "s": "x + -3", "m": "minimum(x, -3)"}
    x = torch.tensor([0, 1, 2, 250], dtype=torch.uint8)
    w = torch.where(x > 1, x, torch.tensor(255, dtype=torch.uint8))
    found = operator({"x": f"{declared}[N]"}, lines, tmp_path)(x)
    torch.testing.assert_close(found, (w, x.clamp(-2, 1), x - 3, x.clamp(max=253)))


@pytest.mark.parametrize("declared", ["uint8", "number"])
def test_negative_numbers_among_floats_beside_unsigned_integers(tmp_path: Path, declared: str) -> None:
    """Which stay negative."""
    lines = {"d": "x / -2", "a": "atan2(x, -1)", "w": "where(x > 1, f, -1)", "c": "clamp(f, -1, x)"}
    x, f = torch.tensor([0, 1, 2, 250], dtype=torch.uint8), torch.tensor([-3.0, 0.5, -0.5, 7.0])
    found = operator({"x": f"{declared}[N]", "f": "float[N]"}, lines, tmp_path)(x, f)
    y = x.float()
    wanted = y / -2, torch.atan2(y, -torch.ones(4)), torch.where(x > 1, f, -1.0), torch.minimum(f.clamp(min=-1), y)
    torch.testing.assert_close(found, wanted)


def test_sums_of_numbers_beside_what_is_mapped(tmp_path: Path) -> None:
    """In rows past the last, what is added to a sum is no float where the numbers are integers."""
    lines = {"y": "x * 2", "s": "sum(x + 1, M)", "t": "sum(x + 1, N)"}
    x = torch.full((3, 5), 2**40 + 1)
    found = operator({"x": "number[M, N]"}, lines, tmp_path)(x)
    torch.testing.assert_close(found, (x * 2, (x + 1).sum(0), (x + 1).sum(1)))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize(
    ("text", "of_torch"),
    [
        ("x * 300", lambda x: x * 300),
        ("x + 3449720151", lambda x: x + 3449720151),
        ("x // 300", lambda x: x // 300),
        ("x ^ 40000", lambda x: x ^ 40000),
        ("sum(x * 300, N)", lambda x: (x * 300).sum()),
    ],
)
def test_numbers_wrap_around_to_narrow_dtypes(
    text: str, of_torch: Callable[..., torch.Tensor], dtype: torch.dtype, tmp_path: Path
) -> None:
    name = str(dtype).removeprefix("torch.")
    for number, kind in enumerate((f"{name}[N]", "int[N]")):
        it = operator({"x": kind}, {"y": text}, tmp_path / str(number))
        x = torch.tensor([1, 2, 100, 5, 0, 44], dtype=dtype)
        torch.testing.assert_close(it(x), of_torch(x))


def test_numbers_beyond_int32_beside_positions(tmp_path: Path) -> None:
    """The bounds of the product fit, those of the number do not."""
    it = operator({"x": "int64[N]"}, {"z": "0 * index(N)", "y": "3449720151 * z + x"}, tmp_path)
    x = torch.tensor([1, 2, 3])
    torch.testing.assert_close(it(x), (torch.zeros(3, dtype=torch.int64), x))


# The math, and what it is in torch.
JOINED = {
    "sum(x, N)": lambda x: x.sum(1),
    "sum(x * 2, M)": lambda x: (x * 2).sum(0),
    "prod(x, N)": lambda x: x.prod(1),
    "max(x, N)": lambda x: x.amax(1),
    "argmax(x, N)": lambda x: x.int().argmax(1),
    "cumsum(x, N)": lambda x: x.cumsum(1),
    "cumprod(x, N)": lambda x: x.cumprod(1),
    "exp(x)": lambda x: x.float().exp(),
    "sum(exp(x), M)": lambda x: x.float().exp().sum(0),
    "x // 2": lambda x: x // 2,
    "x & x": lambda x: x & x,
    "bitwise_not(x)": lambda x: ~x,
}


@pytest.mark.parametrize("dtypes", [(torch.int32, torch.bool), (torch.uint8, torch.int64, torch.bool)])
@pytest.mark.parametrize("text", JOINED)
def test_integers_or_booleans(text: str, dtypes: tuple[torch.dtype, ...], tmp_path: Path) -> None:
    kind = "|".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    it = operator({"x": f"{kind}[M, N]"}, {"y": text}, tmp_path)
    for dtype in dtypes:
        x = torch.tensor([[3, 0, 2], [0, 5, 1]]).to(dtype)
        torch.testing.assert_close(it(x), JOINED[text](x))


def test_float_params_beside_what_may_be_integers(tmp_path: Path) -> None:
    """They are not cut to the integers that a kernel computes in, which makes no boolean of 0.5 either."""
    text = """
[op]
name = "params"
summary = "Params."
[inputs]
x = "any[N]"
z = "any[N]"
keep = "bool[N]"
[params]
p = 2.5
[compute]
above = "where(x > p, x, z)"
filled = "where(keep, cast(p, x), x)"
[outputs]
above = "auto"
filled = "x"
"""
    op = built(read_spec("params.toml", text), tmp_path).params
    keep = torch.tensor([True, False, True, False])
    for x in (torch.arange(-2, 2), torch.arange(-2.0, 2.0), torch.tensor([True, False, False, True])):
        z = ~x if x.dtype == torch.bool else 5 - x
        for p in (-1.5, -0.5, 0.5, 300.0):
            above, filled = op(x, z, keep, p=p)
            torch.testing.assert_close(above, torch.where(x > p, x, z))
            torch.testing.assert_close(filled, torch.where(keep, torch.tensor(p).to(x.dtype), x))


@pytest.mark.parametrize("name", ["int8", "int32", "int64"])
def test_params_are_cut_where_they_are_cast(name: str, tmp_path: Path) -> None:
    """Before they meet negative numbers, whose sum with a fraction would be cut the other way."""
    text = f"""
[op]
name = "cut"
summary = "Params."
[inputs]
i = "{name}[N]"
[params]
p = 2.5
n = 300
[compute]
y = "i + cast(p, i)"
z = "i + cast(n, i)"
[outputs]
y = "i"
z = "i"
"""
    i = torch.arange(-4, 4).to(getattr(torch, name))
    y, z = built(read_spec("cut.toml", text), tmp_path).cut(i)
    torch.testing.assert_close(y, i + 2)
    torch.testing.assert_close(z, i + torch.tensor(300).to(i.dtype))


def test_numbers_that_the_host_computes_are_cast(tmp_path: Path) -> None:
    text = """
[op]
name = "cut"
summary = "Numbers of the host."
[inputs]
x = "int32|float32[N]"
[params]
p = 2.5
[compute]
y = "where(x > p, x, cast(p + 0.25, x))"
[outputs]
y = "auto"
"""
    op = built(read_spec("cut.toml", text), tmp_path).cut
    for x in (torch.arange(6, dtype=torch.int32), torch.arange(6.0)):
        torch.testing.assert_close(op(x), torch.where(x > 2.5, x, torch.tensor(2.75).to(x.dtype)))
