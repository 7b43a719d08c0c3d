"""The view of a function that maps elements: see `tritongen.families.elementwise.kernels`."""

from __future__ import annotations

from ...emit.configs import Traffic
from ...emit.host import UNFOLDED
from ...emit.host_checks import IS_FAKE
from ...emit.module import Around, Common, Module
from ...emit.statements import If, Launch, Let, Return, Statement, call, one_or_all
from ...lang.names import in_string
from ...lowering.space import Dim, is_line
from ...lowering.views import Argument, Kernel
from ...nest.values import Expr, Term, V, expr, quoted
from ...passes.structure import Program, without_strides
from ...spec.types import BATCH
from .kernels import MapKernels


class MapModule(Common):
    """The call of the runtime's function that launches the kernels of a program: see its elementwise.py."""

    def __init__(self, program: Program, autotune: bool, around: Around) -> None:
        self.plan = MapKernels(program)
        super().__init__(program, autotune, self.plan.space, self.plan.tile.compute, self.plan.launched, around)
        self.kinds = ["flat"] if is_line(self.space) else ["tile"] if self.space.split else ["flat", "tile"]

    def module(self) -> Module:
        if not self.space.dims:
            return self.built(self.passed_fake([self.single(self.plan.launched[0])]))
        run = {"flat": "run_line", "tile": "run_tiles"}[self.kinds[0]] if len(self.kinds) == 1 else "run"
        launch, retry = call(f"elementwise.{run}", self.key, **self.named()), self.retry()
        unfolded = If(V.launched.negated, (Return(retry),), UNFOLDED)
        body = self.passed_fake([Let("launched", launch), unfolded] if retry else [Launch(launch)])
        windows = "along" if self.program.maps_back else "of" if self.program.over else ""
        return self.built(body, Traffic(frozenset(self.kinds), windows=windows), nests=self.nests())

    def passed_fake(self, launches: list[Statement]) -> list[Statement]:
        """The body of the function, whose launches are passed `is_fake` and the compute dtype."""
        known = self.known(self.plan.launched[0])
        return [*self.begun(known), *self.allocated(), *self.again(known), *self.launched(launches)]

    def single(self, kernel: Kernel) -> Launch:
        """The launch of a kernel of a single element, for which no table has tiles."""
        tensors, _, params = self.arguments(kernel)
        sizes = tuple(map(self.value, self.plan.sizes))
        options = self.constants() | {name: self.index() for name in kernel.blocks}
        passed = [self.key, self.launcher(kernel), (1,), None, tensors, *_without_empty_ends([sizes, params])]
        when = V[IS_FAKE].negated if IS_FAKE in self.around.extra else None
        return Launch(call("launch.run", *passed, **options, num_warps=1), when)

    def nests(self) -> list[Kernel]:
        """The kernels, in the order in which they stand in the module."""
        launched = zip(self.plan.launched, self.kinds, strict=True)
        searched = [self.searched(kernel, kind.upper()) or kernel for kernel, kind in launched]
        return [*([self.plan.math] if self.plan.math else []), *searched]

    # The call of the runtime

    def named(self) -> dict[str, Term]:
        """The arguments of the call by name."""
        kernels = [*map(self.launcher, self.plan.launched)]
        tables = [expr(None) if self.autotune else self.table_of(kind.upper()) for kind in self.kinds]
        operands, _, params = self.arguments(self.plan.launched[0])
        every = ", ".join(self.axes_of(name) for name in operands)
        several = "s" if len(kernels) > 1 else ""
        arguments = {f"kernel{several}": one_or_all(kernels), f"table{several}": one_or_all(tables)}
        sizes: list[Expr] = [*map(self.value, self.plan.sizes)]
        if is_line(self.space):
            sizes = [*self.line(operands), *sizes]
        else:
            arguments |= {"axes": quoted(f"{every} -> {self.stepped()}"), "n_dims": expr(self.n_dims)}
        constants = {in_string(name): value for name, value in self.constants().items()}
        arguments |= {"operands": operands, "constants": constants, "sizes": tuple(sizes) or None}
        return arguments | {"params": params or None, "is_fake": IS_FAKE if IS_FAKE in self.around.extra else None}

    def line(self, operands: tuple[str, ...]) -> list[Expr]:
        """The length of the only axis, and the strides of the tensors that have it."""
        (axis,) = self.space.dims[0].axes
        moving = {name: (axes, axis, optional) for name, axes, optional in self.host.moving(self.space.dims)}
        strides = [self.host.stride(name, *moving[name]) for name in operands if name in moving]
        full = [result.output.name for result in self.op.results if result.axes == (axis,) and not result.when]
        return [V[full[0]].method("numel") if full else V[axis], *strides]

    def constants(self) -> dict[str, Expr]:
        compute = V.compute if self.host.allocates_wide() else self.host.compute_value()
        names = self.plan.launched[0].constexprs
        return {name: compute if name == "COMPUTE" else self.constant(name) for name in names}

    def axes_of(self, name: str) -> str:
        """The axes of a tensor, as text; "()" if it has none or kernels do not step through it by strides."""
        axes = self.op.tensors[name]
        return " ".join(axes) if axes and name not in without_strides(self.op) else "()"

    @property
    def folded(self) -> tuple[str, ...]:
        """The axes that fold into one another; () for a single axis other than the batch, which is passed unchanged."""
        dims = [dim for dim in self.space.rows if not dim.pinned] if self.space.split else self.space.dims
        axes = dims[0].axes if dims else ()
        return axes if len(axes) > 1 or axes == (BATCH,) else ()

    @property
    def n_dims(self) -> int:
        """How many dimensions of a kernel the `folded` axes become."""
        return sum(dim.axes == self.folded for dim in self.space.dims)

    def stepped(self) -> str:
        """The iteration space of a kernel, as text."""
        space, folded = self.space, self.folded
        text = f"({' '.join(folded)})" if folded else ""
        if folded and not space.split:
            return text
        rows = [_dim_text(dim) for dim in space.rows if dim.axes != folded]
        return " ".join([*([text] if text else []), *rows, "*".join(map(_dim_text, space.cols)) or "1"])

    def retry(self) -> Expr | None:
        """The retry of the call, if folding may leave more dimensions than a kernel has; else None."""
        return self.host.retry() if BATCH in self.folded or len(self.folded) > self.n_dims else None

    def value(self, size: Argument) -> Expr:
        """The value passed for a length or stride; for the length of a pinned dimension, its axis."""
        own = {dim.size: V[dim.axes[0]] for dim in self.space.dims if dim.pinned}
        return own.get(size.spelling, size.value)


def _dim_text(dim: Dim) -> str:
    """The axes of a dimension, followed by its length if that is a constant of the kernel."""
    axis = ".".join(dim.axes)
    return axis if dim.size.isidentifier() else f"{axis}={dim.size}"


def _without_empty_ends(arguments: list[Term]) -> list[Term]:
    """The arguments without trailing empty ones, which are the defaults."""
    given = [place for place, one in enumerate(arguments, 1) if one]
    return arguments[: max(given, default=0)]
