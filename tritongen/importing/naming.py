"""Names of axes: by their use, and `...` for leading axes that no function names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..lang.reductions import REDUCTIONS
from .axes import Axes, Dim, Dims
from .expressions import KEEPS_AXES, Apply, AxesOf, Expr, Over, bare, subexpressions

BATCH = "..."
# Usual names of variables that hold lengths, by axis.
_VARIABLES = {
    "B": "b bs bsz batch batch_size n_batch nb",
    "T": "t seq_len seqlen seq_length q_len tgt_len n_tokens length l tokens s",
    "S": "kv_len src_len kv_seq_len k_len",
    "H": "h n_heads num_heads nheads n_head heads num_attention_heads height",
    "W": "w width",
    "G": "g groups num_groups n_groups n_kv_heads num_kv_heads num_key_value_heads kv_heads",
    "R": "n_rep num_key_value_groups rep",
    "D": "d head_dim d_head dim_head hd dh",
    "C": "c channels n_channels in_channels n_embd n_embed",
    "N": "n hidden_size d_model dim hidden hidden_dim embed_dim features",
    "V": "v vocab_size n_vocab vocab",
    "E": "e n_experts num_experts",
    "K": "k",
    "M": "m",
}
_OF_VARIABLE = {name: axis for axis, names in _VARIABLES.items() for name in names.split()}
# Usual axes of an argument, by its rank.
_BY_RANK = {1: "N", 2: "M|N", 3: "B|T S|N", 4: "B|H G|T S|D", 5: "B|H G|S|T|D"}
_LETTERS = "N M K D E H C S J P Q R G L U V W X Y Z A B F I O T".split()


def axis_of_variable(name: str) -> str:
    """The axis that a variable of a length stands for, or ""."""
    if name.isupper() and len(name) <= 2 and name.isalnum():
        return name
    return _OF_VARIABLE.get(name.lower(), "")


def reachable(results: Iterable[Expr], known: dict[int, Expr] | None = None) -> list[Expr]:
    """All subexpressions of results, arguments first, each once, without names of lines.

    Those in `known` are left out, and the others are added to it.
    """
    known = {} if known is None else known
    found: list[Expr] = []

    def visit(expr: Expr) -> None:
        expr = bare(expr)
        if id(expr) not in known:
            known[id(expr)] = expr
            for inner in subexpressions(expr):
                visit(inner)
            found.append(expr)

    for one in results:
        visit(one)
    return found


@dataclass(frozen=True, slots=True)
class Names:
    """Names of axes; `batch` has the axes that `...` stands for, in order."""

    of: Mapping[int, str]
    batch: tuple[int, ...]
    axes: Axes
    axes_of: AxesOf

    def over(self, over: Over, expr: Expr) -> list[str]:
        """The axis names passed to a function; none if a reduction is over all axes of its argument."""
        atoms = self.axes.atoms(over.dim)
        is_over = isinstance(expr, Apply) and expr.args[3:] == (over,)  # `over` of a sum by index.
        if is_complete(expr, atoms, self.axes_of) or (is_over and self.axes_of(subexpressions(expr)[1]) == set(atoms)):
            return []
        return [self.of[axis] for axis in atoms]


def is_complete(expr: Expr, atoms: Sequence[int], axes_of: AxesOf) -> bool:
    if not isinstance(expr, Apply) or expr.function in KEEPS_AXES or expr.function not in REDUCTIONS:
        return False
    return axes_of(subexpressions(expr)[0]) == set(atoms)


def along(exprs: Iterable[Expr], axes: Axes) -> Iterator[tuple[Apply, Dim]]:
    """Yields each function that takes axes, with these axes."""
    for expr in exprs:
        for one in expr.args if isinstance(expr, Apply) else ():
            if isinstance(expr, Apply) and isinstance(one, Over):
                yield expr, axes.atoms(one.dim)


def batch_axes(axes: Axes, tensors: Sequence[Dims], results: Sequence[Dims], named: set[int]) -> tuple[int, ...]:
    """The longest run of leading axes that no function names, and that all tensors with any of them begin with."""
    leading = [_leading(axes, dims, named) for dims in tensors]
    longest = max(leading, key=len, default=())
    for count in range(len(longest), 0, -1):
        batch = longest[:count]
        if all(is_led(axes, dims, batch, True) for dims in tensors) and all(
            is_led(axes, dims, batch, False) for dims in results
        ):
            return batch
    return ()


def _leading(axes: Axes, dims: Dims, named: set[int]) -> tuple[int, ...]:
    def leads(atoms: Dim) -> bool:
        return len(atoms) == 1 and atoms[0] not in named and not axes[atoms[0]].fixed

    return tuple(axis for axis, *_ in takewhile(leads, map(axes.atoms, dims)))


def is_led(axes: Axes, dims: Dims, batch: tuple[int, ...], broadcasts: bool) -> bool:
    """Whether a tensor has no batch axes or begins with all, some of which may have length 1 if it `broadcasts`."""
    shape = [axes.atoms(dim) for dim in dims]
    if not set(batch) & {axis for atoms in shape for axis in atoms}:
        return True
    if led(axes, dims, batch) != len(batch) or set(batch) & {axis for atoms in shape[len(batch) :] for axis in atoms}:
        return False
    return all(atoms == (axis,) or (broadcasts and not atoms) for atoms, axis in zip(shape, batch, strict=False))


def led(axes: Axes, dims: Dims, batch: tuple[int, ...]) -> int:
    """The number of leading dimensions that `...` stands for."""
    shape = [axes.atoms(dim) for dim in dims]
    places = [place for place, atoms in enumerate(shape) if set(atoms) & set(batch)]
    if not places:
        return len(batch) if len(shape) >= len(batch) and not any(shape[: len(batch)]) else 0
    behind = len(batch) - 1 - max(batch.index(axis) for axis in shape[places[-1]] if axis in batch)
    return min(places[-1] + 1 + behind, len(shape), len(batch))


def axis_names(axes: Axes, order: Iterable[int], reserved: Iterable[str]) -> dict[int, str]:
    """A unique name for each axis: wishes are granted by rank, then in the order of axes."""
    used, names = set(reserved), dict[int, str]()
    axes_in_order = list(dict.fromkeys(order))
    wishes = [
        (rank, place, name, axis)
        for place, axis in enumerate(axes_in_order)
        for rank, name in (*axes[axis].wishes, *((9, letter) for letter in _LETTERS))
    ]
    for _, _, name, axis in sorted(wishes, key=lambda wish: wish[:2]):
        if axis not in names and name not in used:
            names[axis] = name
            used.add(name)
    free = (name for number in range(1, 999) if (name := f"A{number}") not in used)
    return {axis: names[axis] if axis in names else next(free) for axis in axes_in_order}


def wish_by_place(axes: Axes, tensors: Iterable[Dims]) -> None:
    """Wishes usual names by the rank of tensors, at low priority: rows first, columns last."""
    for dims in tensors:
        for dim, names in zip(dims, _BY_RANK.get(len(dims), "").split("|"), strict=False):
            axes.wish(dim, names, 7)
        for atoms in map(axes.atoms, dims):
            free = [axis for axis in atoms if not axes[axis].fixed] or list(atoms)
            for axis in atoms if len(atoms) > 1 else ():
                axes.wish((axis,), "D E" if axis == free[-1] else "H G", 6)
