"""Op -> the view of the generated module of a matmul."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.matmul_configs import Summing
from ...emit.module import Around, Common, Module, length_text
from ...lang.ir import Result
from ...lowering.lines import Line
from ...lowering.space import Space
from ...lowering.tile import mentions
from ...lowering.views import Kernel
from ...passes.factors import SHORTEST
from ...passes.structure import Program
from ...spec.types import BATCH
from .addressing import COUNTS
from .copies import HALVES, TURNS
from .kernels import COMBINED_ROWS, SLICERS, ContractionKernels, plan_contraction
from .operands import Operand

TILES = "**config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages"
GROUPED = "**config.kwargs", '**config.kwargs | {"BLOCK_K": block_k}'
STAGED = "num_stages=config.num_stages", "num_stages=stages"


# Where the rows and columns of a tile are, which blocks of its matrices may need too.
POSITIONS = {
    "rows": "rows = (first_row.to(INDEX) + tl.arange(0, BLOCK_M))[:, None]",
    "cols": "cols = (first_col.to(INDEX) + tl.arange(0, BLOCK_N))[None, :]",
    "row_mask": "row_mask = rows < n_rows",
    "col_mask": "col_mask = cols < n_cols",
}


def positions_in(lines: list[Line]) -> list[str]:
    """The positions that some lines need."""
    needed = {name for name in POSITIONS if mentions(lines, name)}
    needed |= {f"{name[:3]}s" for name in needed}
    return [line for name, line in POSITIONS.items() if name in needed]


def combined(tiles: str) -> tuple[str, str]:
    """The grid of the reduction of partial sums of some tiles, a few rows at a time, and its tiles."""
    blocks = 'BLOCK_M=block_m, BLOCK_N=block_n, GROUP=config.kwargs["GROUP"], num_warps=4'
    return f"({tiles} * block_m // {COMBINED_ROWS},)", blocks


class Products(Common):
    """The module of a contraction. Matrices come as batch by rows by columns, whatever their axes.

    With `by_gemm`, the runtime's gemm computes it, and it has no kernels of its own.
    """

    def __init__(self, program: Program, around: Around, by_gemm: bool = False) -> None:
        self.by_gemm = by_gemm
        assert program.contraction is not None
        self.plan: ContractionKernels = plan_contraction(program)
        self.operands = self.plan.operands
        self.contraction = program.contraction
        plan = self.plan
        every = plan.pointers, plan.descriptors, plan.shares, plan.parts, plan.combine
        kernels = [] if by_gemm else [kernel for kernel in every if kernel]
        super().__init__(program, False, Space((), ()), plan.compute, kernels, around)

    def module(self) -> Module:
        if self.by_gemm:
            return Module(self.view(self.calling()), Traffic(frozenset()))
        plan = self.plan
        batched = bool(self.contraction.batch)
        dot = self.host.dtype(plan.dot) if plan.dot else f"{self.operands.matrices[0].name}.dtype"
        extra: dict[str, Any] = {
            "macros": "products.jinja",
            "calls": [],
            "batched": batched,
            "batch_factor": "n_batch * " if batched else "",
            "sums": self.contraction.sums,
            "whole_rows": plan.whole_rows,
            "stage_bytes": self.stage_bytes(),
            "cols_last": self.cols_last(),
            "summed": "n_summed" if plan.skips else "n_steps" if self.operands.group_size else "n_inner",
            **self.groups(),
            **self.overlap(),
            "combined_rows": COMBINED_ROWS,
            "slices": plan.slices,
            "sliced": self.sliced(),
            "turns": len(self.contraction.products) if plan.takes_turns else 0,
            "slicing": {2: "Half by half", 4: "Quarter by quarter"}[plan.slices],
            **self.descriptor_extra(plan.descriptors, plan.shares),
            "counts": self.counts(),
            "known_lengths": self.known_lengths() if self.around.register == "triton_op" else "",
            "is_empty": " or ".join(f"{COUNTS[role]} == 0" for role in self.present(("batch", "rows", "cols"))),
            "merge": self.merge(),
            **self.by_name(),
            "fold": [],
            "dtypes": self.dtypes(dot),
            "dot": "dot" if plan.dot else dot,
            "allocate": self.allocate(),
            "result": self.result(),
            "workspaces": self.workspaces("tiles * n_parts"),
        }
        for key in ("pointers", "parts", "combine"):
            extra[key] = self.kernel_view(getattr(plan, key))
        tiles = self.tiles.replace(*STAGED)
        extra["launch_pointers"] = self.launches(self.launch_of(plan.pointers, "(tiles,)", tiles))
        shared = {"first_tile": "0", "n_long": "tiles", "long_parts": "n_parts", "n_short": "0", "short_parts": "0"}
        extra["launch_parts"] = self.launches(
            self.launch_of(plan.parts, "(tiles, n_parts)", tiles),
            self.launch_of(plan.combine, *combined("tiles"), **shared),
        )
        summing = Summing(
            len(self.contraction.sums),
            self.sides(),
            plan.descriptors is not None,
            self.operands.multiplies_bytes,
            twice=bool(self.operands.group_size) or self.operands.float8,
            width=self.width() if plan.whole_rows else 0,
            halved=plan.halved,
            takes_turns=plan.takes_turns,
            terms=max(Counter(product.sum for product in self.contraction.products).values()),
        )
        kinds = {kind for kind in ("pointers", "descriptors", "shares") if getattr(plan, kind)}
        return Module(self.view(extra), Traffic(frozenset(kinds), summing=summing))

    def calling(self) -> dict[str, Any]:
        """What the template sees of a function that calls gemm."""
        (result,) = self.op.results
        name, merge = result.output.name, self.merge()
        sides = [self.inner_last(one) for one in sorted(self.operands.matrices, key=lambda operand: operand.side)]
        precision = [f'"{self.op.precision}"'] if self.op.precision != "ieee" else []
        call, returned = f"gemm.gemm({', '.join([*sides, *precision])})", self.returned(result)
        lines = [f"return {call}"] if returned == name else [f"{name} = {call}", f"return {returned}"]
        roles = tuple(role for role in COUNTS if any(COUNTS[role] in line for line in merge))
        return {
            "macros": "products.jinja",
            "calls": [*(self.counts(roles) if roles else []), *merge, *lines],
            # What it has no use for would count as reading the axes.
            **dict.fromkeys(("fields", "results", "allocate"), ()),
            **dict.fromkeys(("result", "index"), ""),
        }

    def sides(self) -> tuple[int, int]:
        """How many matrices are read of the left side, and of the right."""
        left = sum(operand.side == 0 for operand in self.operands.matrices)
        return left, len(self.operands.matrices) - left

    def stage_bytes(self) -> str:
        """The bytes of what is read for a block of the inner axes."""
        matrices = self.operands.matrices
        sizes = [f"{operand.name}.dtype.itemsize" for operand in matrices if operand.tensor.default is None]
        itemsize = f"max({', '.join(['dot.itemsize', *sizes])})" if self.plan.dot else sizes[0]
        blocks = [
            f"{count} * {block}" if count > 1 else block
            for count, block in zip(self.sides(), ("block_m", "block_n"), strict=True)
            if count
        ]
        return f"({' + '.join(blocks)}) * block_k * {itemsize}"

    def cols_last(self) -> str:
        """Whether columns of a right matrix lie next to one another in memory."""
        rights = [operand for operand in self.operands.matrices if operand.side == 1]
        places = [self.contraction.roles(operand.tensor.type.axes).index("cols") for operand in rights]
        steps = [f"{operand.name}.stride({at})" for operand, at in zip(rights, places, strict=True)]
        if self.around.register == "triton_op":  # A trace has them as numbers, as it has the lengths.
            steps = [f"int({step})" for step in steps]
        return " or ".join(f"{step} == 1" for step in steps) or "False"

    def sliced(self) -> list[str]:
        """The lines that split the accumulators of a tile into the slices of its epilogue."""

        def slices(name: str) -> str:
            if self.plan.halved:
                return ", ".join(f"{name}{half}" for half in HALVES)
            return f"{SLICERS[self.plan.slices]}({name}, BLOCK_M, BLOCK_N)"

        return [f"{name}_slices = {slices(name)}" for name in self.contraction.sums]

    def groups(self) -> dict[str, str]:
        """How blocks keep to groups of the inner axes that are scaled by themselves."""
        size = self.operands.group_size
        if not size:
            return {"group_size": "", "block_end": "n_inner", "whole_blocks": "", "fit_whole": "", "fit": ""}
        described = self.plan.descriptors is not None
        holds = f"max({SHORTEST}, tensors.power_of_two({size}))"
        holds = str(1 << (int(size) - 1).bit_length()) if size.isdigit() else holds
        return {
            "group_size": size,
            "block_end": f"(group + 1) * {size}",
            "whole_blocks": "" if size.isdigit() else f" and {size} % {SHORTEST} == 0",
            "fit_whole": f"block_k = math.gcd(block_k, {size})  # Groups are whole blocks." if described else "",
            "fit": f"block_k = min(block_k, {holds})",
        }

    def descriptor_extra(self, kernel: Kernel | None, shares: Kernel | None) -> dict[str, Any]:
        if kernel is None:
            return {"descriptors": None, "shares": None}
        vectors = [line for line in (*kernel.setup, *kernel.body) if "_desc." not in line.text]
        every = self.launch_of(kernel, "(min(tiles, programs),)", f"{self.specialised_loop()}{self.tiles}")
        steps = "n_groups * tensors.cdiv({}, block_k)" if self.contraction.groups else "tensors.cdiv(n_inner, block_k)"
        turns = f"{len(self.contraction.products)} * " if self.plan.takes_turns else ""
        return {
            "descriptors": self.kernel_view(kernel),
            "shares": shares and self.kernel_view(shares),
            "shared_terms": f"{turns}n_inner" if shares else "0",
            "tile_steps": turns + steps.format(self.operands.group_size),
            "apart": self.operands.joined.apart() if self.operands.joined else [],
            # Whether a side has more than whole blocks, which descriptors copy.
            "masks_inner": mentions(vectors, "inner") or mentions(vectors, "inner_mask"),
            "positions": list(POSITIONS.values()) if positions_in(vectors) else [],
            "share_positions": positions_in(vectors),
            "describe": self.describe(kernel),
            "launch_descriptors": self.launches_with(shares, every) if shares else self.launches(every),
        }

    def launches_with(self, shares: Kernel, every: str) -> list[str]:
        """The lines that launch a kernel on the tiles of full waves, and stream-K on those of the tail wave."""
        others = (
            self.launch_of(shares, "(n_parts,)", self.tiles),
            self.launch_of(self.plan.combine, *combined("(n_long + n_short)")),
        )
        workspaces = ["n_parts = n_long * long_parts + n_short * short_parts", *self.workspaces("n_parts")]
        launched = [f"launches += [{', '.join(others)}]"] if self.knows else others
        return [
            *(["launches = []"] if self.knows else []),
            "if first_tile:",
            f"    launches.append({every})" if self.knows else f"    {every}",
            "if n_long:",
            *(f"    {line}" for line in (*workspaces, *launched)),
            *(["launch.remember(key, *launches)"] if self.knows else []),
        ]

    def specialised_loop(self) -> str:
        return f"WARP_SPECIALIZE=heuristics.warps_specialize({self.first()}.device), " if self.specialises else ""

    @property
    def specialises(self) -> bool:
        """Whether the kernel is warp-specialised: several matmuls of plain matrices."""
        several = len(self.contraction.sums) > 1 and not self.operands.joined
        return several and self.contraction.is_plain

    def overlap(self) -> dict[str, str]:
        """How copies overlap with computation: as measured, see docs/design/contraction.md."""
        if self.specialises:
            return {
                "overlap": "Some warps copy while others compute; else, the next tile is copied while one is stored.",
                "loop_option": "flatten=not WARP_SPECIALIZE, warp_specialize=WARP_SPECIALIZE",
                "loop_constexpr": "WARP_SPECIALIZE: tl.constexpr, ",
            }
        text = "Flattened, so that the next tile is being copied while this one is finished and stored."
        return {"overlap": text, "loop_option": "flatten=True", "loop_constexpr": ""}

    def dtypes(self, dot: str) -> list[str]:
        lines = [f"dot = {dot}"] if self.plan.dot else []
        if names := self.plan.widened:
            widened = f"{', '.join(names)} = {', '.join(f'{name}.to(dot)' for name in names)}"
            lines += [
                "if dot == torch.float64:  # Triton 3.6 multiplies that by nothing that was narrower.",
                f"    {widened}",
            ]
        if "ACC" in self.plan.pointers.constexprs:
            lines.append(
                f"accumulator = tl.float64 if {'dot' if self.plan.dot else dot} == torch.float64 else tl.float32"
            )
        return lines

    def present(self, roles: tuple[str, ...]) -> list[str]:
        return [role for role in roles if self.contraction.axes(role)]

    def counts(self, roles: tuple[str, ...] = ("batch", "rows", "cols", "inner")) -> list[str]:
        roles = tuple(self.present(roles))
        counts = [length_text(self.contraction.axes(role)) for role in roles]
        lines = [f"{', '.join(COUNTS[role] for role in roles)} = {', '.join(counts)}"]
        if self.operands.group_size:
            lines.append(f"n_groups = {length_text(self.contraction.groups)}")
        if self.operands.group_size == "group_size":
            lines.append(f"group_size = {length_text(self.contraction.within)}")
        return lines

    def known_lengths(self) -> str:
        names = ", ".join(COUNTS[role] for role in self.present(("batch", "rows", "cols", "inner")))
        return f"{names} = map(int, ({names}))"

    def width(self) -> int:
        sizes = dict(self.op.sizes)
        width = math.prod(sizes[axis] for axis in self.contraction.cols)
        return max(16, 1 << (width - 1).bit_length())

    # Shapes

    def merge(self) -> list[str]:
        """Lines that give each tensor one dimension for each role that its axes play."""
        lines = []
        for tensor in self.op.inputs:
            text = self.merged(tensor.name, tensor.type.axes)
            if text != tensor.name:
                line = f"{tensor.name} = {text}"
                lines += [f"if {tensor.name} is not None:", f"    {line}"] if tensor.default is not None else [line]
        return lines

    def merged(self, name: str, axes: tuple[str, ...]) -> str:
        roles = self.contraction.roles(axes)
        wanted = [axis for role in roles for axis in self.contraction.axes(role) if axis in axes]
        text = name
        if list(axes) != wanted:
            text += f".permute({self.places(axes, wanted)})"
        is_matrix = any(operand.name == name for operand in self.operands.matrices)
        lacks = {role: () if is_matrix else self.contraction.lacking(role, axes) for role in roles}
        every = [axis for role in roles for axis in self.contraction.axes(role) if axis not in lacks[role]]
        if len(every) == len(wanted) == len(roles) and BATCH not in wanted:
            return text
        if len(every) > len(wanted):  # What it lacks of a role's axes is the same along them.
            ones = {axis: "*(1,) * len(batch)" if axis == BATCH else "1" for axis in every if axis not in axes}
            spread = ", ".join(ones.get(axis, "*batch" if axis == BATCH else axis) for axis in every)
            sizes = ", ".join("*batch" if axis == BATCH else axis for axis in every)
            text = f"{text}.reshape({spread}).expand({sizes})"
        has = {role: tuple(axis for axis in self.contraction.axes(role) if axis in every) for role in roles}
        return f"{text}.reshape({', '.join(length_text(has[r]) if lacks[r] else COUNTS[r] for r in roles)})"

    def places(self, axes: tuple[str, ...], wanted: list[str]) -> str:
        """The positions of some axes, of which one may stand for any number: those behind it count from the end."""
        many = axes.index(BATCH) if BATCH in axes else len(axes)
        places = [axes.index(axis) if axes.index(axis) < many else axes.index(axis) - len(axes) for axis in wanted]
        every = f"{many}, {many} + len(batch)" if many else "len(batch)"
        return ", ".join(
            f"*range({every})" if axis == BATCH else str(at) for axis, at in zip(wanted, places, strict=True)
        )

    def allocate(self) -> list[str]:
        lines = [f"compute = {self.host.compute_value()}"] if self.host.allocates_wide() else []
        for result in self.op.results:
            otherwise = f" if {result.when} else None" if result.when else ""
            lines.append(f"{result.output.name} = {self.empty(result)}{otherwise}")
        return lines

    def empty(self, result: Result) -> str:
        roles = self.ordered(result.axes)
        sizes = tuple_text([COUNTS[role] for role in roles])
        return f"torch.empty({sizes}, dtype={self.host.dtype(result.dtype)}, device={self.first()}.device)"

    def ordered(self, axes: tuple[str, ...]) -> list[str]:
        """The roles of a result in the order in which its memory has them."""
        return [role for role in ("batch", "rows", "cols") if role in self.contraction.roles(axes)]

    def result(self) -> str:
        return ", ".join(self.returned(result) for result in self.op.results)

    def returned(self, result: Result) -> str:
        """The result with its axes apart again, and in its own order."""
        name, axes = result.output.name, result.axes
        made = [axis for role in self.ordered(axes) for axis in self.contraction.axes(role)]
        text = name
        if any(
            self.contraction.axes(role) != (axis,) for role, axis in zip(self.ordered(axes), made, strict=False)
        ) or (BATCH in made):
            sizes = ", ".join("*batch" if axis == BATCH else axis for axis in made)
            text += ".view(batch)" if made == [BATCH] else f".view({sizes})"
        if tuple(made) != axes:
            text += f".permute({self.places(tuple(made), list(axes))})"
        shape = result.output.shape or self.host.grouped(result)
        for position, term in zip(range(-1, -len(shape) - 1, -1), reversed(shape), strict=True):
            if len(term.names) > 1:
                text += f".flatten({position - len(term.names) + 1}, {position})"
        return f"{text} if {name} is not None else None" if result.when and text != name else text

    # Launches

    def describe(self, kernel: Kernel) -> list[str]:
        lines = []
        names = [argument.spelling for argument in kernel.arguments]
        blocks = "block_m", "block_n // 2" if self.plan.halved else "block_n"
        # Of the right one tiles have more rows, so that a copy pays where the left one has many.
        others = "", ", n_rows"
        if self.plan.takes_turns:
            for side, (flag, block) in enumerate(zip(TURNS.values(), blocks, strict=True)):
                sides = [operand for operand in self.operands.matrices if operand.side == side]
                made = tuple_text([f"{operand.name}_desc" for operand in sides])
                given = tuple_text([self.inner_last(operand) for operand in sides])
                lines.append(f"{made}, {flag.lower()} = tma.descriptors({given}, {block}, block_k{others[side]})")
        else:
            for operand in self.operands.matrices:
                if f"{operand.name}_desc" in names:
                    side = operand.side
                    described = f"tma.descriptor({self.inner_last(operand)}, {blocks[side]}, block_k{others[side]})"
                    lines.append(f"{operand.name}_desc, {self.flag(operand)} = {described}")
        if joined := self.operands.joined:
            described = f"tma.joined_descriptor({joined.first.name}, {joined.second.name}, block_n, block_k)"
            lines.append(f"{joined.name}_desc, {joined.flag.lower()} = {described}")
        width = "block_n" if self.plan.whole_rows else f"block_n // {self.plan.slices}"
        for name, when in [(r.output.name, r.when) for r in self.op.results if f"{r.output.name}_desc" in names]:
            otherwise = f" if {name} is not None else None" if when else ""
            lines.append(f"{name}_desc = tma.result_descriptor({name}, block_m, {width}){otherwise}")
        return lines

    def flag(self, operand: Operand) -> str:
        return operand.flag.lower()

    def inner_last(self, operand: Operand) -> str:
        roles = self.contraction.roles(operand.tensor.type.axes)
        if (roles[-1] == "inner" and roles[0] == "batch") or roles == (("rows", "cols")[operand.side], "inner"):
            return operand.name
        if len(roles) == 2 or roles[0] == "batch":
            return f"{operand.name}.mT"
        order = [roles.index(role) for role in ("batch", ("rows", "cols")[operand.side], "inner")]
        return f"{operand.name}.permute({', '.join(map(str, order))})"

    def workspaces(self, n_parts: str) -> list[str]:
        dtypes = {"ACC": "dtypes.torch_dtype(accumulator)", "tl.float32": "torch.float32", "tl.int32": "torch.int32"}
        dtypes["COMPUTE"] = "dtypes.torch_dtype(compute)"
        dtype = dtypes[self.plan.accumulator]
        made = f"torch.empty(({n_parts}, block_m, block_n), dtype={dtype}, device={self.first()}.device)"
        return [f"{name}_part = {made}" for name in self.contraction.sums]

    @property
    def tiles(self) -> str:
        return TILES.replace(*GROUPED) if self.operands.group_size else TILES

    def launches(self, *launches: str) -> list[str]:
        """The lines that launch kernels, by which calls like this one launch the same at once."""
        return [f"launch.remember(key, {', '.join(launches)})"] if self.knows else list(launches)

    def launch_of(self, kernel: Kernel, grid: str, tiles: str, **given: str) -> str:
        """The launch of a kernel on a grid of tiles, with what is given in place of lengths that have no name there."""
        passed = [given.get(name, name) for name in kernel.passed]
        options = f"{self.options(kernel)}, {tiles}"
        if self.knows:
            return f"launch.run_named(kernels.{kernel.name}, {grid}, by_name, {tuple_text(passed)}, {options})"
        return f"launch.run(None, {self.around.launcher(kernel.name)}, {grid}, None, {tuple_text(passed)}, {options})"

    def options(self, kernel: Kernel) -> str:
        """What a launch compiles a kernel for, but for tiles."""
        values = {"COMPUTE": "compute", "DOT": "dtypes.triton_dtype(dot)", "ACC": "accumulator"}
        values |= {flag: flag.lower() for flag in TURNS.values()}
        values |= {operand.flag: self.flag(operand) for operand in self.operands.matrices}
        values |= {joined.flag: joined.flag.lower()} if (joined := self.operands.joined) else {}
        return ", ".join([*(f"{name}={values.get(name, name)}" for name in kernel.constexprs), "INDEX=index"])

    def by_name(self) -> dict[str, list[str]]:
        """The lines that find the launches of a call like this one, and launch them where results are allocated."""
        if not self.knows:
            return {"find": [], "known": []}
        names = [tensor.name for tensor in self.op.inputs] + [result.output.name for result in self.op.results]
        pairs = [f'"{name}": {name}' for name in [*names, *(param.name for param in self.op.params)]]
        apart = []
        if self.plan.descriptors and (joined := self.operands.joined):
            both = f"{joined.first.name}, {joined.second.name}"
            apart = [f"launch.distance({both})"]
            pairs.append(f'"{joined.name}": launch.first_of({both})')
        return {
            "find": self.find(*apart),
            "known": [f"by_name = {{{', '.join(pairs)}}}", *self.launch_again("by_name", self.result())],
        }
