"""The inputs of a test: their declarations, random values, and layouts in memory."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
PADDING = 1024  # elements before and after each tensor

Layout = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Input:
    """A tensor argument: its axes ("H * D" is one dimension of two), its dtypes, and the range of its values.

    Inputs of one `group` have the same dtype. `low` and `high` may be axes, for their lengths. An input with a
    `default` is optional, and stands for that number if it is left out. If `summed` is the axis over which products
    with an unbounded input give scores, its values are drawn so that scores are about 1, whatever the length.
    """

    name: str
    axes: tuple[str, ...]
    dtypes: tuple[torch.dtype, ...]
    group: str = ""
    low: float | str | None = None
    high: float | str | None = None
    default: float | None = None
    summed: str = ""

    @property
    def is_float(self) -> bool:
        """Whether it may have a float dtype with infinities, which excludes float8."""
        return any(one.is_floating_point and one.itemsize > 1 for one in self.dtypes)

    def shape(self, lengths: Mapping[str, Sequence[int]]) -> tuple[int, ...]:
        """Its shape for some lengths of axes."""
        return tuple(size for term in self.axes for size in _dimensions(term, lengths))

    def draw(
        self,
        lengths: Mapping[str, Sequence[int]],
        dtype: torch.dtype,
        ends: bool = True,
    ) -> torch.Tensor:
        """Random values, the same on every device; with `ends`, bounded integers include their bounds."""
        low, high = (
            lengths[bound][0] if isinstance(bound, str) else bound
            for bound in (self.low, self.high)
        )
        if self.summed and low is None and high is None:
            high = 2 / max(1, lengths[self.summed][0]) ** 0.25
            low = -high
        values = _values(self.shape(lengths), dtype, low, high)
        has_ends = ends and not dtype.is_floating_point
        if has_ends and low is not None and high is not None:
            values.view(-1)[:1], values.view(-1)[1:][-1:] = int(low), int(high) - 1
        return placed(values.to(DEVICE, dtype))


def _dimensions(term: str, lengths: Mapping[str, Sequence[int]]) -> Sequence[int]:
    if term in lengths:
        return lengths[term]
    parts = term.split(" * ")
    sizes = [int(part) if part.isdigit() else lengths[part][0] for part in parts]
    return (math.prod(sizes),)


def _values(
    shape: tuple[int, ...], dtype: torch.dtype, low: float | None, high: float | None
) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, shape)
    low, high = -4 if low is None else low, 4 if high is None else high
    if dtype.is_floating_point:
        return torch.empty(shape, dtype=torch.float64).uniform_(low, high)
    if dtype == torch.uint8:
        low = max(low, 0)
    return torch.randint(int(low), int(high), shape)


# Memory


def steps(shape: Sequence[int]) -> list[int]:
    """The strides of a contiguous tensor."""
    return [math.prod(shape[place + 1 :]) for place in range(len(shape))]


def placed(
    values: torch.Tensor, strides: Sequence[int] | None = None, first: int = 0
) -> torch.Tensor:
    """The values in new memory, surrounded by others that no kernel may read: NaN, or the largest integers."""
    strides = steps(values.shape) if strides is None else strides
    span = sum(
        (size - 1) * step
        for size, step in zip(values.shape, strides, strict=True)
        if size
    )
    memory = torch.empty(
        span + 1 + 2 * PADDING, dtype=values.dtype, device=values.device
    )
    if values.dtype.is_floating_point:
        memory.copy_(torch.tensor(math.nan))
    else:
        is_flag = values.dtype == torch.bool
        memory.fill_(True if is_flag else torch.iinfo(values.dtype).max)
    return memory.as_strided(values.shape, strides, PADDING + first).copy_(values)


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, as drawn."""
    return tensor


def backwards(tensor: torch.Tensor) -> torch.Tensor:
    """With the order of dimensions reversed in memory."""
    dims = tuple(reversed(range(tensor.ndim)))
    return placed(tensor.permute(dims)).permute(dims)


def backward_matrices(tensor: torch.Tensor) -> torch.Tensor:
    """With the last two dimensions swapped in memory."""
    return placed(tensor.mT).mT if tensor.ndim > 1 else tensor


def scattered(tensor: torch.Tensor) -> torch.Tensor:
    """Every second element of a larger tensor along every dimension, so that none fold."""
    large = [2 * size for size in tensor.shape]
    return placed(tensor, [2 * step for step in steps(large)])


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """One element past an aligned address."""
    return placed(tensor, first=1)


def overlapping(tensor: torch.Tensor) -> torch.Tensor:
    """Each row starts one element after the previous one."""
    flat = placed(tensor.flatten())
    ones = (1,) * tensor.ndim
    return flat.as_strided(tensor.shape, ones, flat.storage_offset())


def same_rows(tensor: torch.Tensor) -> torch.Tensor:
    """One row for all, by a stride of zero."""
    return tensor[:1].expand_as(tensor) if tensor.ndim else tensor


def same_columns(tensor: torch.Tensor) -> torch.Tensor:
    """One column for all, by a stride of zero."""
    return tensor[..., :1].expand_as(tensor) if tensor.ndim else tensor
