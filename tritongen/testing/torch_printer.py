"""Prints the math of a spec line by line in torch, for the oracle of emitted tests."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce

from ..lang.expressions import Expressions
from ..lang.formulas import by_params, inputs_in_order, python, wanted_of
from ..lang.functions import FUNCTIONS
from ..lang.integers import IntegerBounds
from ..lang.ir import Op, Result
from ..lang.names import shown
from ..lang.reductions import REDUCTIONS
from ..lang.syntax import Text
from ..lang.trees import parenthesized, parse, substitute, walk
from ..lowering.axes import regrouped
from ..nest.values import Expr
from ..spec.types import BATCH, BOOLS, FLOATS, INTS, Input, Spec
from .torch_calls import (
    ANY_DIMS,
    ONE_DIM,
    SCALARS,
    Term,
    as_tensor,
    attribute,
    axis_of,
    call,
    chosen,
    einsum,
    factors_of,
    indexed,
    merged,
    method,
    moved,
    normalised,
    permuted,
    reduced,
    replaced,
    zero,
)

# A recurrence of the first of two tensors, with the second as decay, along the last dimension, which has a length.
PAIRED = (
    "functools.reduce(lambda h, n: (h[0] + h[1] * torch.nn.functional.pad(h[0], (n, -n)),"
    " h[1] * torch.nn.functional.pad(h[1], (n, -n))), [2**n for n in range(max({1} - 1, 0).bit_length())], {0})[0]"
)
# Functions that the method of their name prints.
_SPECIAL = frozenset("index size take cast argsort argtopk recurrence scatter_sum sort topk".split())


@dataclass
class Printer:
    """Prints [compute] as torch. Tensors keep their axes in the operator's order throughout."""

    spec: Spec
    op: Op
    terms: dict[str, Term] = field(default_factory=dict)
    sized: set[str] = field(default_factory=set)

    def lines(self) -> tuple[str, ...]:
        before: list[str] = []
        for tensor in inputs_in_order(self.op):
            kind = "bool" if tensor.type.dtypes == ("bool",) else ""
            axes = self.ordered(tensor.type.axes)
            text = self.ungrouped(tensor) + moved(tensor.type.axes, axes)
            is_chosen = len(tensor.type.dtypes) > 1 and set(tensor.type.dtypes) <= set(FLOATS)
            self.terms[tensor.name] = Term(ast.Name(tensor.name), axes, True, kind, is_chosen)
            if text != tensor.name:
                before.append(f"{tensor.name} = {text}")
        for param in self.op.params:
            kind = {"enum": "bool"}.get(param.kind, param.kind)
            self.terms[param.name] = Term(ast.Name(param.name), (), False, kind)
        math, read = list[str](), set[str]()
        for statement in self.spec.compute:
            term = self.visit(Text(statement.expression).parse())
            math.append(f"{statement.name} = {ast.unparse(term.tree)}")
            read |= {one.id for one in walk(term.tree) if isinstance(one, ast.Name)}
            self.terms[statement.name] = replace(term, tree=ast.Name(statement.name))
        results = ", ".join(self.result(result) for result in self.op.results)
        last = math[-1].partition(" = ")
        if results == last[0]:
            math, results = math[:-1], last[2]
        self.sized = {axis for axis in self.sized if axis == BATCH or axis in read}  # Not each comparison was needed.
        return (*before, *self.lengths(), *math, f"return {results}")

    def lengths(self) -> Iterator[str]:
        """The lines of the lengths that the math reads, those that are computed after all others."""
        had = {axis for tensor in self.op.inputs for axis in tensor.type.axes}
        computed = wanted_of(
            self.sized, (formula for formula in self.op.formulas if formula.axis in self.op.computed - had)
        )
        read, fixed = {*self.sized}.union(*(formula.reads for formula in computed)), dict(self.op.sizes)
        yield from (f"{axis} = {fixed[axis]}" for axis in sorted(read & fixed.keys(), key=shown))
        for axis in sorted(read - fixed.keys() - {formula.axis for formula in computed}, key=shown):
            name = next(tensor.name for tensor in self.op.inputs if axis in tensor.type.axes)
            axes = self.terms[name].axes
            position = axes.index(axis) - len(axes)
            if axis == BATCH:
                yield f"batch = {name}.shape" + (f"[:{position + 1}]" if len(axes) > 1 else "")
            else:
                yield f"{axis} = {name}.shape[{position}]"
        yield from (f"{one.axis} = {ast.unparse(python(one.node))}" for one in computed)

    def ungrouped(self, tensor: Input) -> str:
        """The tensor with a dimension for each axis, split from the first on: places from the end remain valid."""
        shape, text = tensor.type.shape, tensor.name
        for position, term in enumerate(shape):
            if len(term.names) > 1:
                sizes = ", ".join(self.group_size(axis, tensor) for axis in term.names)
                text = f"torch.unflatten({text}, {position - len(shape)}, ({sizes}))"
        return text

    def group_size(self, axis: str, tensor: Input) -> str:
        """The length of an axis in a group: fixed, another tensor's, by params, or -1 for the rest."""
        fixed = dict(self.op.sizes)
        if axis in fixed:
            return str(fixed[axis])
        for name, term in self.terms.items():
            if axis in term.axes:
                return f"{name}.shape[{term.axes.index(axis) - len(term.axes)}]"
        early = by_params(self.op.formulas, self.op.inputs, fixed)
        return next((ast.unparse(python(one.node)) for one in early if one.axis == axis), "-1")

    def result(self, result: Result) -> str:
        term = self.terms[result.output.name]
        text = result.output.name if term.tensor else ast.unparse(as_tensor(term))
        value = Expr(parse(text + moved(term.axes, result.axes)))
        return regrouped(value, self.op.grouping(result)).text

    def ordered(self, axes: Iterable[str]) -> tuple[str, ...]:
        found = set(axes)
        return tuple(axis for axis in self.op.axes if axis in found)

    # Expressions

    def visit(self, tree: ast.expr) -> Term:
        match tree:
            case ast.Constant(value=value):
                kind = {bool: "bool", int: "int", float: "float"}.get(type(value), "")
                return Term(tree, (), False, kind)
            case ast.Name(id=name) if name in self.terms:
                return self.terms[name]
            case ast.Name(id=name):
                return Term(attribute(name), (), False, "float")
            case ast.UnaryOp(op=op, operand=operand):
                term = self.visit(operand)
                if isinstance(op, ast.Not) and term.tensor:
                    return self.call("logical_not", [term])
                return replace(term, tree=ast.UnaryOp(op, term.tree))
            case ast.BinOp(left=left, op=op, right=right):
                return self.binary(op, self.visit(left), self.visit(right))
            case ast.BoolOp(op=op, values=values):
                return self.logic(op, [self.visit(value) for value in values])
            case ast.Compare(left=left, ops=ops, comparators=rights):
                terms = [self.visit(side) for side in (left, *rights)]
                pairs = [self.compare(*pair) for pair in zip(terms, ops, terms[1:], strict=False)]
                return self.logic(ast.And(), pairs)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                then, other = self.visit(body), self.visit(orelse)
                choice = ast.IfExp(self.visit(test).tree, then.tree, other.tree)
                axes = self.ordered(then.axes + other.axes)
                kind = then.kind if then.kind == other.kind else ""
                is_chosen = then.is_chosen and other.is_chosen
                return Term(choice, axes, then.tensor or other.tensor, kind, is_chosen)
            case ast.Call(func=ast.Name(id=name)):
                return self.function(name, tree)
        raise AssertionError(f"the type check lets {ast.dump(tree)} through")

    def align(self, term: Term, axes: tuple[str, ...]) -> ast.expr:
        """The term with dimensions of one where it lacks an axis, for torch to broadcast."""
        if not term.tensor or not term.axes:
            return term.tree
        inner = axes[axes.index(term.axes[0]) :]
        missing = next((n for n, axis in enumerate(inner) if axis not in term.axes), None)
        if missing is None:
            return term.tree
        indices: list[ast.expr] = [ast.Constant(...)]
        for axis in inner[missing:]:
            indices.append(ast.Slice() if axis in term.axes else ast.Constant(None))
        return ast.Subscript(term.tree, ast.Tuple(indices))

    def aligned(self, terms: list[Term]) -> tuple[list[ast.expr], tuple[str, ...]]:
        axes = self.ordered(axis for term in terms for axis in term.axes)
        return [self.align(term, axes) for term in terms], axes

    def binary(self, op: ast.operator, left: Term, right: Term) -> Term:
        (a, b), axes = self.aligned([left, right])
        kind = left.kind if left.kind == right.kind else ""
        return Term(ast.BinOp(a, op, b), axes, left.tensor or right.tensor, kind, chosen(left, right))

    def compare(self, left: Term, op: ast.cmpop, right: Term) -> Term:
        (a, b), axes = self.aligned([left, right])
        return Term(ast.Compare(a, [op], [b]), axes, left.tensor or right.tensor, "bool")

    def logic(self, op: ast.boolop, terms: list[Term]) -> Term:
        if len(terms) == 1:
            return terms[0]
        if not any(term.tensor for term in terms):
            return Term(parenthesized(ast.BoolOp(op, [term.tree for term in terms])), (), False, "bool")
        result = terms[0]
        for term in terms[1:]:
            name = "logical_and" if isinstance(op, ast.And) else "logical_or"
            result = self.call(name, [result, term])
        return result

    # Functions

    def function(self, name: str, tree: ast.Call) -> Term:
        if name in _SPECIAL:
            found: Term = getattr(self, name)(tree)
            return found
        if name in REDUCTIONS:
            return self.reduction(name, tree)
        row = FUNCTIONS[name]
        given = dict(zip((arg.name for arg in row.args), map(self.visit, tree.args), strict=False))
        given |= {str(keyword.arg): self.visit(keyword.value) for keyword in tree.keywords}
        defaults = (Term(ast.Constant(arg.default), (), False) for arg in row.args)
        terms = [given.get(a.name, default) for a, default in zip(row.args, defaults, strict=True)]
        return self.call(name, terms)

    def call(self, name: str, terms: list[Term]) -> Term:
        row = FUNCTIONS[name]
        if name == "where" and terms[0].kind != "bool":
            terms = [self.compare(terms[0], ast.NotEq(), zero()), *terms[1:]]
        trees, axes = self.aligned(terms)
        arguments = {}
        for arg, term, tree in zip(row.args, terms, trees, strict=True):
            number = not arg.required or f"{name}.{arg.name}" in SCALARS
            arguments[arg.name] = tree if term.tensor or number else as_tensor(term)
        template = parse(row.torch)
        kind = {"bool": "bool", "float": "float"}.get(row.result, "")
        is_chosen = row.result != "bool" and chosen(*terms[name == "where" :])
        return Term(substitute(template, arguments), axes, True, kind, is_chosen)

    def index(self, tree: ast.Call) -> Term:
        found, *others = map(self.positions, map(ast.unparse, tree.args))
        for other in others:
            first = self.binary(ast.Mult(), found, self.length_of(*other.axes))
            found = self.binary(ast.Add(), first, other)
        return found

    def positions(self, axis: str) -> Term:
        first = next(t.name for t in self.op.inputs)
        text = f"torch.arange({self.length(axis)}, device={first}.device)"
        return Term(parse(text), (axis,), True, "int")

    def size(self, tree: ast.Call) -> Term:
        return self.length_of(*map(axis_of, tree.args))

    def length_of(self, *axes: str) -> Term:
        return Term(parse(" * ".join(map(self.length, axes))), (), False, "int")

    def length(self, axis: str) -> str:
        fixed = dict(self.op.sizes)
        if axis in fixed:
            return str(fixed[axis])
        self.sized.add(axis)
        return "math.prod(batch)" if axis == BATCH else axis

    def cast(self, tree: ast.Call) -> Term:
        term, name = self.visit(tree.args[0]), ast.unparse(tree.args[1])
        value = term.tree if term.tensor else as_tensor(term)
        dtype = f"{name}.dtype" if name in self.terms else f"torch.{name}"
        return Term(method(value, "to", parse(dtype)), term.axes, True, "bool" if name == "bool" else "")

    def take(self, tree: ast.Call) -> Term:
        source, index = self.visit(tree.args[0]), self.visit(tree.args[1])
        names = [ast.unparse(one) for one in tree.args[2:]]
        source, axis = self.as_one(source, names), names[0]
        fill = next((self.visit(keyword.value) for keyword in tree.keywords), None)
        if not index.tensor and fill is None:
            rest = tuple(name for name in source.axes if name != axis)
            position = source.axes.index(axis) - len(source.axes)
            return replace(source, tree=method(source.tree, "select", position, index.tree), axes=rest)
        if not index.tensor:
            index = Term(as_tensor(index), (), True, "int")
        is_given = any(tensor.name == ast.unparse(tree.args[1]) for tensor in self.op.inputs) and fill is None
        length = " * ".join(map(self.length, names))
        found = self.taken(source, index, axis, "" if is_given else length)
        if is_given:
            return found
        outside = self.outside(tree.args[0]) if fill is None else fill
        return self.inside(found, index, names, outside, self.ends(tree.args[1], names))

    def as_one(self, source: Term, names: Sequence[str]) -> Term:
        """A term whose last dimension is several axes, under the name of the first."""
        if len(names) == 1:
            return source
        rest = tuple(name for name in source.axes if name not in names)
        moved = permuted(source.tree, source.axes, (*rest, *names))
        return replace(source, tree=method(moved, "flatten", -len(names), -1), axes=(*rest, names[0]))

    def taken(self, source: Term, index: Term, axis: str, length: str) -> Term:
        """The elements at positions along an axis, clamped to the first and last if there is a `length`."""
        rest = tuple(name for name in source.axes if name != axis)
        position = source.axes.index(axis) - len(source.axes)
        index = Term(method(index.tree, "long"), index.axes, True)
        if length:
            index = Term(method(index.tree, "clamp", 0, parse(f"{length} - 1")), index.axes, True)
        if set(index.axes) & set(rest):
            return self.gather(source, index, axis)
        axes = self.ordered(rest + index.axes)
        found: ast.expr
        if BATCH in index.axes and rest:
            first = method(source.tree, "movedim", position, 0)
            found, order = ast.Subscript(first, index.tree), index.axes + rest
        else:
            found, order = indexed(source, position, index), replaced(source.axes, axis, index.axes)
        return replace(source, tree=permuted(found, order, axes), axes=axes)

    def outside(self, source: ast.expr) -> Term:
        """The value for positions outside of an axis: NaN, or 0 of integers."""
        names = {node.id for node in ast.walk(source) if isinstance(node, ast.Name)}
        read = [tensor for tensor in self.op.inputs if tensor.name in names]
        is_integral = bool(read) and all({*tensor.type.dtypes} <= {*INTS, *BOOLS} for tensor in read)
        return zero() if is_integral else Term(attribute("nan"), (), False, "float")

    def ends(self, at: ast.expr, axes: Sequence[str]) -> tuple[bool, bool]:
        """Whether a position may lie before some axes, and whether after them."""
        typer = Expressions(self.spec)
        for value in self.op.values:
            typer.add(value)
        bounds = IntegerBounds(typer.sizes, typer.params, typer.inputs, typer.values)
        return bounds.may_be_outside(typer.visit(at), *axes)

    def inside(
        self, found: Term, index: Term, axes: Sequence[str], outside: Term, ends: tuple[bool, bool] = (True, True)
    ) -> Term:
        """`found` where the index is inside some axes, else `outside`; tests only the `ends` that it may be beyond."""
        length = Term(parse(" * ".join(map(self.length, axes))), (), False, "int")
        tests = [self.compare(index, ast.GtE(), zero())] if ends[0] else []
        if ends[1]:
            tests.append(self.compare(index, ast.Lt(), length))
        return (
            self.call("where", [reduce(partial(self.binary, ast.BitAnd()), tests), found, outside]) if tests else found
        )

    def gather(self, source: Term, index: Term, axis: str) -> Term:
        """The elements at an index that varies along other axes of the source."""
        axes = self.ordered(source.axes + index.axes)
        position = axes.index(axis) - len(axes)
        spread = self.spread(source, axes), self.spread(index, axes)
        found = call("torch.take_along_dim", *spread, position)
        if axis in index.axes:
            return replace(source, tree=found, axes=axes)
        rest = tuple(name for name in axes if name != axis)
        return replace(source, tree=method(found, "squeeze", position), axes=rest)

    def spread(self, term: Term, axes: tuple[str, ...]) -> ast.expr:
        """The term with a dimension for each axis, for functions of torch that do not broadcast."""
        tree, named = term.tree, [axis for axis in axes if axis != BATCH]
        if any(axis not in term.axes for axis in named):
            indices: list[ast.expr] = [ast.Constant(...)] if BATCH in term.axes else []
            indices += [ast.Slice() if axis in term.axes else ast.Constant(None) for axis in named]
            tree = ast.Subscript(tree, ast.Tuple(indices))
        if BATCH in axes and BATCH not in term.axes:
            self.sized.add(BATCH)
            tree = method(tree, "expand", ast.Starred(ast.Name("batch")), *[-1] * len(named))
        return tree

    def argsort(self, tree: ast.Call) -> Term:
        term, axis = self.visit(tree.args[0]), axis_of(tree.args[-1])
        descending = ", descending=True" if _is_set(tree, "descending") else ""
        options = f"dim={term.axes.index(axis) - len(term.axes)}{descending}, stable=True"
        return Term(parse(f"torch.argsort({ast.unparse(term.tree)}, {options})"), term.axes, True, "int")

    def sort(self, tree: ast.Call) -> Term:
        term, order = self.visit(tree.args[0]), self.argsort(tree)
        place = order.axes.index(axis_of(tree.args[-1])) - len(order.axes)
        return replace(term, tree=call("torch.take_along_dim", term.tree, order.tree, place))

    def argtopk(self, tree: ast.Call) -> Term:
        """The first `k` positions in order, and -1 after the last."""
        term, k, axis = self.visit(tree.args[0]), axis_of(tree.args[1]), axis_of(tree.args[2])
        rest = tuple(one for one in term.axes if one != axis)
        x = f"({ast.unparse(term.tree)}){moved(term.axes, (*rest, axis))}"
        largest = not any(getattr(one.value, "value", True) is False for one in tree.keywords)
        count, length = self.length(k), self.length(axis)
        order = f"torch.argsort({x}, descending={largest}, stable=True)"
        text = f"torch.nn.functional.pad({order}, (0, max({count} - {length}, 0)), value=-1)[..., :{count}]"
        axes = self.ordered((*rest, k))
        return Term(parse(text + moved((*rest, k), axes)), axes, True, "int")

    def topk(self, tree: ast.Call) -> Term:
        term, at, axis = self.visit(tree.args[0]), self.argtopk(tree), axis_of(tree.args[2])
        found = self.taken(term, at, axis, self.length(axis))
        return self.inside(found, at, (axis,), self.outside(tree.args[0]))

    def recurrence(self, tree: ast.Call) -> Term:
        """The recurrence by composing pairs of steps, then pairs of these, and so on: few calls for any length."""
        terms = [self.visit(one) for one in tree.args[:2]]
        axis, axes = axis_of(tree.args[2]), self.ordered(axis for term in terms for axis in term.axes)
        last = (*(other for other in axes if other != axis), axis)
        back = ".flip(-1)" if _is_set(tree, "reverse") else ""
        spread = [self.align(term, axes) if term.tensor else as_tensor(term) for term in terms]
        both = ast.unparse(call("torch.broadcast_tensors", *spread))
        both = f"[one{moved(axes, last)}{back} for one in {both}]" if moved(axes, last) + back else both
        text = PAIRED.format(both, self.length(axis)) + back + moved(last, axes)
        return Term(parse(text), axes, True, "", chosen(*terms))

    def scatter_sum(self, tree: ast.Call) -> Term:
        """Adds the rows of x to zeros: a row for each element of a line, and a last one for positions outside."""
        term, index = map(self.visit, tree.args[:2])
        term = term if term.tensor else Term(as_tensor(term), (), True, term.kind)
        index = Term(method(index.tree, "long"), index.axes, True)
        into = [axis_of(one) for one in tree.args[2:]]
        named = [axis_of(one) for keyword in tree.keywords for one in getattr(keyword.value, "elts", [keyword.value])]
        over = named or [*index.axes]
        lines = [axis for axis in index.axes if axis not in over]
        cols = [axis for axis in self.ordered(term.axes) if axis not in index.axes]
        rows = (*lines, *over)
        of_line, of_all = self.length_of(*into), self.length_of(*lines, *into)
        inside = [self.compare(index, ast.GtE(), zero()), self.compare(index, ast.Lt(), of_line)]
        if lines:
            line = self.index(ast.Call(ast.Name("index"), [ast.Name(axis) for axis in lines], []))
            index = self.binary(ast.Add(), self.binary(ast.Mult(), line, of_line), index)
        key = self.call("where", [self.logic(ast.And(), inside), index, of_all])
        keys = f"({ast.unparse(key.tree)}){moved(key.axes, rows)}.flatten()"
        wide = self.ordered((*rows, *cols))
        expanded = f"({ast.unparse(self.spread(term, wide))}).expand({self.shape(wide)})"
        terms = f"{expanded}{moved(wide, (*rows, *cols))}.reshape({self.shape(rows, ' * ')}, {self.shape(cols)})"
        terms += ".long()" if term.kind in ("bool", "int") else ""
        text = f"({terms}).new_zeros({ast.unparse(of_all.tree)} + 1, {self.shape(cols)}).index_add(0, {keys}, {terms})"
        made = (*lines, *into, *cols)
        text += f"[:-1].reshape({self.shape(made)}){moved(made, self.ordered(made))}"
        return Term(parse(text), self.ordered(made), True, term.kind, term.is_chosen)

    def shape(self, axes: Iterable[str], between: str = "") -> str:
        """The lengths of some axes, as arguments, or their product."""
        self.sized |= {axis for axis in axes if axis == BATCH}
        return (between or ", ").join("*batch" if axis == BATCH and not between else self.length(axis) for axis in axes)

    # Reductions

    def reduction(self, name: str, tree: ast.Call) -> Term:
        if name == "sum" and (product := self.matmul(tree)):
            return product
        term = self.visit(tree.args[0])
        over = self.ordered(axis_of(axis) for axis in tree.args[1:]) or term.axes
        rest = tuple(axis for axis in term.axes if axis not in over)
        name = {"max": "amax", "min": "amin"}.get(name, name)
        options = {str(keyword.arg): self.visit(keyword.value).tree for keyword in tree.keywords}
        options.pop("reverse", None)
        x, dims = self.reduced_dims(name, term, over)
        if name in ("softmax", "log_softmax"):
            mapped = normalised(name, x, dims)
            if x is not term.tree:
                mapped = method(mapped, "view_as", term.tree)
            return Term(mapped, term.axes, True, "float", term.is_chosen)
        if name in ("cumsum", "cumprod"):
            back = _is_set(tree, "reverse")
            scanned = reduced(name, method(x, "flip", dims[0]) if back else x, dims, options)
            return Term(method(scanned, "flip", dims[0]) if back else scanned, term.axes, True, "", term.is_chosen)
        kind = "bool" if name in ("any", "all") else ""
        is_chosen = term.is_chosen and name not in ("any", "all", "argmax", "argmin")
        return Term(reduced(name, x, dims, options), rest, True, kind, is_chosen)

    def matmul(self, tree: ast.Call) -> Term | None:
        """A sum of products in which two factors each have an axis that the other lacks; None for any other sum."""
        terms = [self.visit(factor) for factor in factors_of(tree.args[0])]
        summed = {axis_of(axis) for axis in tree.args[1:]}
        # A factor without summed axes multiplies the sum; one without axes that another factor lacks multiplies that.
        outside = [term for term in terms if summed.isdisjoint(term.axes)]
        inside: list[Term] = []
        for term in sorted((one for one in terms if one not in outside), key=lambda one: -len(one.axes)):
            place = next((n for n, one in enumerate(inside) if {*term.axes} <= {*one.axes}), None)
            if place is None:
                inside.append(term)
            else:
                inside[place] = self.binary(ast.Mult(), inside[place], term)
        first = next((term for term in inside if term.is_chosen), None)
        if len(inside) < 2 or first is None:
            return None
        same = [one if one.is_chosen else replace(one, tree=method(one.tree, "to", first.tree)) for one in inside]
        rest = self.ordered(axis for term in inside for axis in term.axes if axis not in summed)
        return reduce(partial(self.binary, ast.Mult()), outside, Term(einsum(same, rest), rest, True, "", True))

    def reduced_dims(self, name: str, term: Term, over: tuple[str, ...]) -> tuple[ast.expr, tuple[int, ...]]:
        """The tensor to reduce, and its dimensions to reduce; () stands for all where torch allows it."""
        if over == term.axes and (len(over) > 1 or BATCH in over):
            if name in ANY_DIMS:
                return term.tree, ()
            return method(term.tree, "flatten"), (0,)
        dims = tuple(term.axes.index(axis) - len(term.axes) for axis in over)
        x = term.tree
        if BATCH in over:  # The leading dimensions, and one more in case there are none, become one.
            self.sized.add(BATCH)
            first = ast.Subscript(x, ast.Constant(None))
            x = method(first, "flatten", 0, parse("len(batch)"))
        return merged(x, dims) if name in ONE_DIM and len(dims) > 1 else (x, dims)


def _is_set(tree: ast.Call, name: str) -> bool:
    """Whether an option is True."""
    return any(one.arg == name and getattr(one.value, "value", False) is True for one in tree.keywords)
