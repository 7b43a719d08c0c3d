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
N_PARTS = {"bf16x3": 2, "bf16x6": 3}  # by the precision of float32 matmuls
# Decided at import, as it is for kernels; torch.compile cannot trace reads of the environment.
INTERPRETED: bool = triton.knobs.runtime.interpret


def promote(*dtypes: torch.dtype) -> torch.dtype:
    """torch's promotion of several dtypes; the default dtype if there are none, as all inputs may be optional."""
    return functools.reduce(torch.promote_types, dtypes or (torch.get_default_dtype(),))


def as_float(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a float function's result."""
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def int_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of arithmetic with a Python integer, which promotes booleans to int64."""
    return torch.int64 if dtype == torch.bool else dtype


def sum_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of a sum: int64 for integers and booleans."""
    return dtype if dtype.is_floating_point else torch.int64


def compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype of computations: float32 for half precision, integers for booleans."""
    widened = {torch.float16: "float32", torch.bfloat16: "float32", torch.bool: "int8"}
    return getattr(tl, widened.get(dtype, str(dtype).removeprefix("torch.")))


def widest(*tensors: torch.Tensor | None) -> tl.dtype:
    """The dtype in which floats are computed: float64 if a tensor has it, otherwise float32."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype is torch.float64:
            return tl.float64
    return tl.float32


def wide_compute_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype of reductions: float32 for half precision, int64 for integers."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int64


def accumulator_dtype(dtype: torch.dtype) -> tl.dtype:
    """The dtype in which tensor cores accumulate products of a dtype."""
    if dtype == torch.float64:
        return tl.float64
    return tl.float32 if dtype.is_floating_point else tl.int32


def dot_precision(precision: str) -> str:
    """The `input_precision` of tl.dot for float32; the interpreter lacks some, and never splits or rounds."""
    return "ieee" if INTERPRETED else precision


def n_parts(dtype: torch.dtype, precision: str) -> int:
    """The number of bfloat16 values that each element is split into; 0 if matrices are not split."""
    return N_PARTS.get(precision, 0) if dtype == torch.float32 else 0


def part_dtype() -> torch.dtype:
    """The dtype of these parts: float32 in the interpreter, which multiplies bfloat16 incorrectly."""
    return torch.float32 if INTERPRETED else torch.bfloat16


def torch_dtype(dtype: tl.dtype) -> torch.dtype:
    """The torch dtype of a Triton dtype."""
    if dtype == tl.int64:
        return torch.int64
    if dtype == tl.int32:
        return torch.int32
    return torch.float64 if dtype == tl.float64 else torch.float32


def triton_dtype(dtype: torch.dtype) -> tl.dtype:
    """The Triton dtype of a torch dtype."""
    return getattr(tl, str(dtype).removeprefix("torch."))
