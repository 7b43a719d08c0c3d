"""Names of axes: those that they are used by, `...` for leading ones that are only carried along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..lang.reductions import REDUCTIONS
from .axes import Axes, Dim, Dims
from .expressions import KEEPS_AXES, Apply, AxesOf, Expr, Over, bare, subexpressions

BATCH = "..."
# What variables that hold lengths are called, and the axes that they are of.
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
# What the dimensions of an argument of some rank usually are.
_BY_RANK = {1: "N", 2: "M|N", 3: "B|T S|N", 4: "B|H G|T S|D", 5: "B|H G|S|T|D"}
_LETTERS = "N M K D E H C S J P Q R G L U V W X Y Z A B F I O T".split()


def axis_of_variable(name: str) -> str:
    """The axis that a variable of a length stands for, or ""."""
    if name.isupper() and len(name) <= 2 and name.isalnum():
        return name
    return _OF_VARIABLE.get(name.lower(), "")


def reachable(results: Iterable[Expr], known: dict[int, Expr] | None = None) -> list[Expr]:
    """The expressions that results are made of, arguments first, each once, without names of lines.

    Those that are `known` are left out, and others become known.
    """
    known = {} if known is None else known
    found: list[Expr] = []

    def visit(expr: Expr) -> None:
        expr = bare(expr)
        if id(expr) not in known:
            known[id(expr)] = expr
            for part in subexpressions(expr):
                visit(part)
            found.append(expr)

    for one in results:
        visit(one)
    return found


@dataclass(frozen=True, slots=True)
class Names:
    """Axes by name; `batch` are those that `...` stands for, in order."""

    of: Mapping[int, str]
    batch: tuple[int, ...]
    axes: Axes
    axes_of: AxesOf

    def over(self, over: Over, expr: Expr) -> list[str]:
        """What a function is given for its axes: nothing where a reduction is over all of them."""
        atoms = self.axes.atoms(over.dim)
        is_over = isinstance(expr, Apply) and expr.args[3:] == (over,)  # Of a sum by index: all axes of positions.
        if is_complete(expr, atoms, self.axes_of) or (is_over and self.axes_of(subexpressions(expr)[1]) == set(atoms)):
            return []
        return [self.of[axis] for axis in atoms]


def is_complete(expr: Expr, atoms: Sequence[int], axes_of: AxesOf) -> bool:
    if not isinstance(expr, Apply) or expr.function in KEEPS_AXES or expr.function not in REDUCTIONS:
        return False
    return axes_of(subexpressions(expr)[0]) == set(atoms)


def along(exprs: Iterable[Expr], axes: Axes) -> Iterator[tuple[Apply, Dim]]:
    """Functions, with axes that they are given."""
    for expr in exprs:
        for one in expr.args if isinstance(expr, Apply) else ():
            if isinstance(expr, Apply) and isinstance(one, Over):
                yield expr, axes.atoms(one.dim)


def batch_axes(axes: Axes, tensors: Sequence[Dims], results: Sequence[Dims], named: set[int]) -> tuple[int, ...]:
    """Leading axes that all tensors that have them begin with, and that nothing names."""
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
    """Whether a tensor begins with the batch axes, of which some may be ones, or has none of them."""
    shape = [axes.atoms(dim) for dim in dims]
    if not set(batch) & {axis for atoms in shape for axis in atoms}:
        return True
    if led(axes, dims, batch) != len(batch) or set(batch) & {axis for atoms in shape[len(batch) :] for axis in atoms}:
        return False
    return all(atoms == (axis,) or (broadcasts and not atoms) for atoms, axis in zip(shape, batch, strict=False))


def led(axes: Axes, dims: Dims, batch: tuple[int, ...]) -> int:
    """How many leading dimensions `...` stands for."""
    shape = [axes.atoms(dim) for dim in dims]
    places = [place for place, atoms in enumerate(shape) if set(atoms) & set(batch)]
    if not places:
        return len(batch) if len(shape) >= len(batch) and not any(shape[: len(batch)]) else 0
    behind = len(batch) - 1 - max(batch.index(axis) for axis in shape[places[-1]] if axis in batch)
    return min(places[-1] + 1 + behind, len(shape), len(batch))


def axis_names(axes: Axes, order: Iterable[int], taken: Iterable[str]) -> dict[int, str]:
    """A name for each axis: what it is best called that no other one is called rather."""
    used, names = set(taken), dict[int, str]()
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
    """What axes are called that nothing is said of: rows before, columns last."""
    for dims in tensors:
        for dim, names in zip(dims, _BY_RANK.get(len(dims), "").split("|"), strict=False):
            axes.wish(dim, names, 7)
        for atoms in map(axes.atoms, dims):
            free = [axis for axis in atoms if not axes[axis].fixed] or list(atoms)
            for axis in atoms if len(atoms) > 1 else ():
                axes.wish((axis,), "D E" if axis == free[-1] else "H G", 6)
