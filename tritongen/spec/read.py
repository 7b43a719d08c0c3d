"""TOML text -> Spec. Reports all structural mistakes together; `typecheck` checks the math."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..diagnostics.report import Mistake, Mistakes, did_you_mean
from .grammar import READ_DTYPES, in_capitals, is_axis, parse_dtypes, parse_input, parse_output
from .nodes import NAME_PATTERN, examine
from .params import number_of, read_param
from .tables import SPEC
from .toml import Table, parse_toml
from .types import (
    BATCH,
    DTYPE_CLASSES,
    AxisTerm,
    Grad,
    Input,
    Original,
    Output,
    Param,
    Peer,
    Range,
    Schedule,
    Spec,
    Statement,
    of_types,
)

BLOCK_LIMIT = 1 << 20  # elements of one Triton tensor
# The modules of a generated package, which are its attributes, as the operator's function is.
MODULES = frozenset("configs kernels op".split())
# Names that torch.ops has already, or reserves for its own operators.
TORCH_NAMESPACES = frozenset(
    "_c10d_functional _caffe2 _dir _dtensor _native _quantized _test aten at c10d debugprims export higher_order"
    " image import_module inductor load_library loaded_libraries mkl mkldnn mkldnn_prepacked onednn prim prims"
    " profiler py quantized rngprims sparse symm_mem torch torchaudio torchvision xnnpack".split()
)


def read_spec(path: str, text: str) -> Spec:
    """The spec in `text`; `path` is its path as generated files print it.

    Raises `BadToml`, or `Mistakes` with all structural mistakes.
    """
    document = parse_toml(text)
    reader = _Reader(document, list(examine(SPEC, document)))
    spec = reader.spec(path)
    if reader.found:
        raise Mistakes(*reader.found)
    return spec


@dataclass
class _Reader:
    """Continues after a mistake: entries that `examine` reported are skipped or left empty."""

    document: Table
    found: list[Mistake]
    used: dict[str, str] = field(default_factory=dict)  # name -> its meaning, for messages
    sizes: dict[str, tuple[int, str]] = field(default_factory=dict)  # axis -> length, and the input that fixes it

    def __post_init__(self) -> None:
        self.wrong = {mistake.key[:2] for mistake in self.found}

    def spec(self, path: str) -> Spec:
        op = self._table("op")
        name = op.get("name")
        if isinstance(name, str) and name.strip():
            self._check_identifier(name, ("op", "name"), start=0)
        inputs = tuple(self._inputs())
        params = tuple(self._params())
        compute = tuple(self._compute())
        for one in inputs:
            for term in one.type.shape:
                self._check_term(one.name, term)
        computed = tuple(self._computed())
        if isinstance(name, str) and name in MODULES:
            message = f"'{name}' cannot be the name of an operator: a module of its package is called so"
            self._note("TG111", message, ("op", "name"), 0, len(name), f"try '{name}_'")
        elif isinstance(name, str):
            self._check_new(name, ("op", "name"), self.used, 0)
        register = _text(self._table("torch").get("register")) or "none"
        original = self._original()
        return Spec(
            path=path,
            name=_text(name),
            summary=_text(op.get("summary")),
            inputs=inputs,
            params=params,
            compute=compute,
            computed=computed,
            outputs=tuple(self._outputs(inputs)),
            grad=self._grad(),
            reference="" if original else _text(self._table("reference").get("torch")),
            original=original,
            register=register,
            namespace=self._namespace(register),
            schedule=self._schedule(),
            precision=_text(op.get("precision")) or "ieee",
            deterministic=op.get("deterministic") is not False,
            ranges=tuple(self._ranges("test", inputs)),
            smallest=tuple(self._smallest(inputs)),
            peers=tuple(self._peers()),
            lengths=tuple(self._lengths(inputs)),
            drawn=tuple(self._ranges("bench", inputs)),
        )

    def _table(self, name: str) -> Table:
        table = self.document.get(name)
        return table if isinstance(table, dict) else {}

    def _note(
        self,
        code: str,
        message: str,
        key: tuple[str, ...],
        start: int | None = None,
        length: int = 1,
        hint: str = "",
    ) -> None:
        self.found.append(Mistake(code, message, key, start, length, hint))

    # Names

    def _check_identifier(self, name: str, key: tuple[str, ...], start: int | None = None) -> bool:
        if not re.fullmatch(NAME_PATTERN, name):
            hint = "a name is letters, digits and underscores, and begins with a letter"
            self._note("TG110", f"'{name}' cannot be a name", key, start, len(name), hint)
        elif keyword.iskeyword(name):
            message = f"'{name}' cannot be a name: it is a keyword of Python"
            self._note("TG111", message, key, start, len(name), f"try '{name}_'")
        else:
            return True
        return False

    def _name(self, name: str, what: str, table: str) -> None:
        """Check and record a name that expressions can use."""
        key = (table, name)
        if not self._check_identifier(name, key):
            return
        if name in READ_DTYPES:
            self._note("TG113", f"'{name}' is already the name of a dtype", key, hint=f"try '{name}_'")
        else:
            self._check_new(name, key, self.used)
        self.used.setdefault(name, what)

    def _check_new(self, name: str, key: tuple[str, ...], used: Mapping[str, str], start: int | None = None) -> None:
        """Report a name that is already in `used`."""
        if name in used:
            message = f"'{name}' is already the name of {used[name]}"
            length = 1 if start is None else len(name)
            self._note("TG113", message, key, start, length, "every name means one thing")

    def _names(self, table: str, key: str, known: Iterable[str], what: str) -> tuple[str, ...]:
        """The list of names under `key`; names that are not in `known` are reported."""
        listed = self._table(table).get(key)
        names = listed if isinstance(listed, list) else []
        known = tuple(known)
        for position, name in enumerate(names):
            if isinstance(name, str) and name.strip() and name not in known:
                hint = did_you_mean(name, known, f"known are {', '.join(known)}" if known else "")
                at = (table, key, str(position))
                self._note("TG114", f"'{name}' is not {what}", at, 0, len(name), hint)
        return tuple(name for name in names if isinstance(name, str))

    # Tensors

    def _inputs(self) -> Iterator[Input]:
        variables = self._variables()
        for name, text in self._table("inputs").items():
            self._name(name, "an input", "inputs")
            if not isinstance(text, str) or not text.strip():
                continue
            try:
                kind, default = parse_input(text, ("inputs", name), variables)
            except Mistakes as mistakes:
                self.found += mistakes.mistakes
            else:
                yield Input(name, kind, default)

    def _variables(self) -> dict[str, tuple[str, ...]]:
        """The shared types with their dtypes; a type with a mistake admits none, and is reported once."""
        variables: dict[str, tuple[str, ...]] = {}
        for name, text in self._table("types").items():
            key = ("types", name)
            if self._check_identifier(name, key) and name in (*DTYPE_CLASSES, *READ_DTYPES):
                self._note("TG113", f"'{name}' is already the name of a dtype", key)
            variables[name] = ()
            if isinstance(text, str) and text.strip():
                try:
                    variables[name] = parse_dtypes(text, key)
                except Mistakes as mistakes:
                    self.found += mistakes.mistakes
        return variables

    def _check_term(self, owner: str, term: AxisTerm) -> None:
        for axis, size in zip(term.names, term.sizes, strict=True):
            key = ("inputs", owner)
            start = self._offset_of(axis, owner)
            self._check_free(axis, key, start)
            if size is None or axis == BATCH:
                continue
            known, by = self.sizes.setdefault(axis, (size, owner))
            if size != known:
                message = f"axis {axis} has length {size} here and {known} in '{by}'"
                self._note("TG127", message, key, start, len(axis))

    def _check_free(self, axis: str, key: tuple[str, ...], start: int | None) -> None:
        """Report an axis whose name is used for something else."""
        named = "the operator" if axis == self._table("op").get("name") else self.used.get(axis)
        if named:
            message = f"axis {axis} has the name of {named}"
            self._note("TG129", message, key, start, len(axis), "every name means one thing")

    def _computed(self) -> Iterator[Statement]:
        """The formulas of [axes]. A formula of an axis that has a fixed length is reported."""
        for axis, formula in self._table("axes").items():
            key = ("axes", axis)
            if not is_axis(axis):
                self._note("TG123", f"'{axis}' is not the name of an axis", key, hint=in_capitals(axis))
            self._check_free(axis, key, None)
            if axis in self.sizes:
                size, owner = self.sizes[axis]
                message = f"axis {axis} has length {size} in '{owner}', and is computed here"
                self._note("TG127", message, key, hint="delete one of both")
            if key not in self.wrong:
                yield Statement(axis, str(formula))

    def _offset_of(self, axis: str, owner: str) -> int:
        text = self._table("inputs")[owner]
        found = re.search(rf"\b{axis}\b", text[text.find("[") :]) if axis != BATCH else None
        return text.find("[") + found.start() if found else 0

    def _outputs(self, inputs: tuple[Input, ...]) -> Iterator[Output]:
        computed = tuple(self._table("compute"))
        names, shared = tuple(self._table("inputs")), of_types(inputs)
        for name, text in self._table("outputs").items():
            key = ("outputs", name)
            if name not in computed:
                hint = did_you_mean(name, computed, "an output is a name of [compute]")
                self._note("TG114", f"'{name}' is not computed", key, hint=hint)
            if not isinstance(text, str) or not text.strip():
                continue
            try:
                yield Output(name, *parse_output(text, key, names, shared))
            except Mistakes as mistakes:
                self.found += mistakes.mistakes

    # Scalars

    def _params(self) -> Iterator[Param]:
        for name, value in self._table("params").items():
            self._name(name, "a param", "params")
            if ("params", name) in self.wrong:
                continue
            try:
                yield read_param(name, value)
            except Mistakes as mistakes:
                self.found += mistakes.mistakes

    # The rest

    def _compute(self) -> Iterator[Statement]:
        for name, expression in self._table("compute").items():
            self._name(name, "a line of [compute]", "compute")
            if isinstance(expression, str):
                yield Statement(name, expression)

    def _grad(self) -> Grad | None:
        if "grad" not in self.document:
            return None
        wrt = self._names("grad", "wrt", self._table("inputs"), "an input")
        names = self._names("grad", "save", self._table("compute"), "a line of [compute]")
        save = names if "save" in self._table("grad") else None
        return Grad(wrt, save, _text(self._table("grad").get("write")) or "backward")

    def _namespace(self, register: str) -> str:
        """The namespace for registration with torch. Names that torch reserves are reported."""
        table = self._table("torch")
        found = _text(table.get("namespace"))
        key = ("torch", "namespace")
        if "namespace" in table and key not in self.wrong and found.strip():
            if register == "none" and ("torch", "register") not in self.wrong:
                hint = 'add register = "custom_op" or "triton_op"'
                self._note("TG140", "a namespace is for an operator that is registered", key, hint=hint)
            elif not found.isidentifier() or not found.isascii() or keyword.iskeyword(found):
                message = f"{found!r} is not a namespace: torch.ops takes the names that Python takes"
                self._note("TG140", message, key, 0, len(found), "write letters, digits and underscores")
            elif found in TORCH_NAMESPACES or found.startswith("__"):
                message = f"the namespace '{found}' is torch's own"
                self._note("TG140", message, key, 0, len(found), "write a name of your project's")
        name = _text(self._table("op").get("name"))
        if register != "none" and name in ("name", "NoneType"):
            message = f"an operator called '{name}' cannot be registered: torch.ops has that name for itself"
            self._note("TG140", message, ("op", "name"), 0, len(name), f"try '{name}_'")
        for table_name in ("inputs", "params") if register != "none" else ():
            if "NoneType" in self._table(table_name):
                message = "'NoneType' cannot be an argument of a registered operator: torch's schemas have no such name"
                self._note("TG140", message, (table_name, "NoneType"), hint="give it another name")
        return found or "tritongen"

    def _schedule(self) -> Schedule:
        table = self._table("schedule")
        lists = {
            name: _integers(table.get(name)) for name in ("block_m", "block_n", "block_k", "num_warps", "num_stages")
        }
        rows, columns = max(lists["block_m"], default=1), max(lists["block_n"], default=1)
        if max(rows, columns) <= BLOCK_LIMIT < rows * columns:
            message = (
                f"a tile of {rows} x {columns} has {rows * columns} elements, more than Triton's limit of {BLOCK_LIMIT}"
            )
            self._note("TG503", message, ("schedule", "block_m"), 0)
        return Schedule(**lists, autotune=table.get("autotune") is True, fuse=table.get("fuse") is not False)

    def _ranges(self, within: str, inputs: tuple[Input, ...]) -> Iterator[tuple[str, Range]]:
        """The ranges of input values in a table, [test] or [bench]."""
        axes = (*_named_axes(inputs), *self._table("axes"))
        for name, table in self._table(within).items():
            key = (within, name)
            if isinstance(table, int) or (within == "bench" and not _is_range(table)):
                continue
            if name not in self._table("inputs"):
                hint = did_you_mean(name, self._table("inputs"))
                self._note("TG114", f"'{name}' is not an input", key, hint=hint)
            if key in self.wrong:
                continue
            low, high = table["low"], table["high"]
            for bound, value in (("low", low), ("high", high)):
                if isinstance(value, str) and value.strip() and value not in axes:
                    hint = did_you_mean(value, axes, "a bound is a number or the name of an axis")
                    message = f"'{value}' is not an axis"
                    self._note("TG114", message, (*key, bound), 0, len(value), hint)
            least, most = number_of(low), number_of(high)
            if least is not None and most is not None and not least < most:
                message = f"'low' of '{name}' is {least}, which is not less than 'high'"
                self._note("TG141", message, (*key, "low"), 0)
            yield name, Range(low, high)

    def _smallest(self, inputs: tuple[Input, ...]) -> Iterator[tuple[str, int]]:
        """The smallest lengths of axes in [test]."""
        hint = "write { low = ..., high = ... } for the values of an input"
        for name, length in self._of_axes("test", inputs, hint):
            assert isinstance(length, int)
            yield name, length

    def _lengths(self, inputs: tuple[Input, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """The lengths of axes in [bench]."""
        for name, found in self._of_axes("bench", inputs, "write { torch = ... } for a peer"):
            yield name, (found,) if isinstance(found, int) else tuple(found)

    def _of_axes(self, table: str, inputs: tuple[Input, ...], otherwise: str) -> Iterator[tuple[str, int | list[int]]]:
        """The lengths that a table gives for axes of variable length."""
        known = {*self.sizes, *self._table("axes")}
        axes = tuple(axis for axis in _named_axes(inputs) if axis not in known)
        for name, found in self._table(table).items():
            if not isinstance(found, int | list) or (table, name) in self.wrong:
                continue
            if name in axes:
                yield name, found
            else:
                hint = did_you_mean(name, axes, otherwise)
                if name in self._table("axes"):
                    hint = "its length is that of [axes]: name those that it is computed of"
                self._note("TG114", f"'{name}' is not an axis whose length varies", (table, name), hint=hint)

    def _peers(self) -> Iterator[Peer]:
        own = dict.fromkeys(("reference", "torch"), "the reference")
        own[_text(self._table("op").get("name"))] = "the operator"
        for name, table in self._table("bench").items():
            if isinstance(table, int | list) or _is_range(table):
                continue
            self._name(name, "a peer", "bench")
            self._check_new(name, ("bench", name), own)
            if ("bench", name) in self.wrong:
                continue
            given = table.get("given", {})
            for one in given:  # Several peers may use a name in `given`, but nothing else may.
                if self._check_identifier(one, key := ("bench", name, "given", one)):
                    self._check_new(one, key, self.used)
            compiled, function = table.get("compile") is True, table.get("function", "")
            yield Peer(name, table["torch"], tuple(given.items()), compiled, function)

    def _original(self) -> Original | None:
        table = self._table("reference")
        home = _text(table.get("from"))
        return Original(home, _text(table.get("torch"))) if home else None


def _named_axes(inputs: tuple[Input, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(axis for one in inputs for axis in one.type.axes if axis != BATCH))


def _is_range(value: object) -> bool:
    """Whether an entry of a table is a range of values, not a peer."""
    return isinstance(value, dict) and bool({"low", "high"} & set(value))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _integers(value: object) -> tuple[int, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(one for one in values if isinstance(one, int) and not isinstance(one, bool))
