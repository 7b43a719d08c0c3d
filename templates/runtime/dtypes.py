"""The dtypes of results and of computations, as torch promotes them."""

import functools

import torch
import triton
import triton.language as tl

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
FLOAT8S = (torch.float8_e4m3fn, torch.float8_e5m2)
INTS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
BOOLS = (torch.bool,)
NUMBERS = (*FLOATS, *INTS)
ANY = (*NUMBERS, *BOOLS)
N_PARTS = {"bf16x3": 2, "bf16x6": 3}  # by precisions of products of float32
# As kernels are, from when they are imported; torch.compile traces no reading of the environment.
INTERPRETED: bool = triton.knobs.runtime.interpret


def promote(*dtypes: torch.dtype) -> torch.dtype:
    """torch's promotion of several dtypes; of none, as optional inputs may all be left out, the default dtype."""
    return functools.reduce(torch.promote_types, dtypes or (torch.get_default_dtype(),))


def as_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a float function's result."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def int_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of arithmetic with an integer of Python's, which makes int64 of booleans."""
    return torch.int64 if dtype == torch.bool else dtype


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a sum: integers and booleans add up as int64."""
    return dtype if dtype.is_floating_point else torch.int64


def compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a dtype is computed in: half precision in float32, booleans as integers."""
    widened = {torch.float16: "float32", torch.bfloat16: "float32", torch.bool: "int8"}
    return getattr(tl, widened.get(dtype, str(dtype).removeprefix("torch.")))


def widest(*tensors: torch.Tensor | None) -> tl.dtype:
    """What floats are computed in: float64 where a tensor is, else float32."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype is torch.float64:
            return tl.float64
    return tl.float32


def wide_compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """What a dtype is reduced in: half precision in float32, integers in int64."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int64


def accumulator_dtype(dtype: torch.dtype) -> tl.dtype:
    """What tensor cores add products of a dtype up in."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int32


def dot_precision(precision: str) -> str:
    """The `input_precision` of tl.dot for float32; the interpreter does not know all, and never splits or rounds."""
    return "ieee" if INTERPRETED else precision


def n_parts(dtype: torch.dtype, precision: str) -> int:
    """Into how many bfloat16s matrices are split; 0 where they are not."""
    return N_PARTS.get(precision, 0) if dtype == torch.float32 else 0


def part_dtype() -> torch.dtype:
    """The dtype of such parts; the interpreter multiplies bfloat16 wrong, and has the same numbers in float32."""
    return torch.float32 if INTERPRETED else torch.bfloat16


def torch_dtype(dtype: tl.dtype) -> torch.dtype:
    """The torch dtype of one that a kernel computes in."""
    if dtype == tl.int64:
        return torch.int64
    if dtype == tl.int32:
        return torch.int32
    return torch.float64 if dtype == tl.float64 else torch.float32


def triton_dtype(dtype: torch.dtype) -> tl.dtype:
    """What Triton calls a dtype of torch."""
    return getattr(tl, str(dtype).removeprefix("torch."))
