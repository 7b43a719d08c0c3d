"""Op -> the view of the generated module of a matmul."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ...emit.configs import Traffic
from ...emit.host_checks import tuple_text
from ...emit.matmul_configs import Summing
from ...emit.module import Around, Common, Module, kernel_view
from ...lowering.lines import Line, mentions
from ...lowering.space import Space
from ...lowering.views import Kernel
from ...passes.factors import SHORTEST
from .addressing import COUNTS
from .copies import TURNS
from .kernels import COMBINED_ROWS, SLICERS, ContractionKernels, plan_contraction
from .program import ContractionProgram
from .shapes import Shapes

# Where the rows and columns of a tile are, which blocks of its matrices may need too.
POSITIONS = ("rows", "cols", "row_mask", "col_mask")
# The split of every tile into as many parts, to the kernel that adds parts up.
ALIKE = {"first_tile": "0", "n_long": "tiles", "long_parts": "n_parts", "n_short": "0", "short_parts": "0"}


def positions_in(lines: list[Line]) -> dict[str, bool]:
    """Which positions some lines need."""
    needed = {name for name in POSITIONS if mentions(lines, name)}
    needed |= {f"{name[:3]}s" for name in needed}
    return {name: name in needed for name in POSITIONS}


class Products(Common):
    """The module of a contraction. Matrices come as batch by rows by columns, whatever their axes.

    With `by_gemm`, the runtime's gemm computes it, and it has no kernels of its own.
    """

    def __init__(self, program: ContractionProgram, around: Around, by_gemm: bool = False) -> None:
        self.by_gemm = by_gemm
        self.plan: ContractionKernels = plan_contraction(program)
        self.operands = self.plan.operands
        self.contraction = program.contraction
        plan = self.plan
        every = plan.pointers, plan.descriptors, plan.shares, plan.parts, plan.combine
        kernels = [] if by_gemm else [kernel for kernel in every if kernel]
        super().__init__(program, False, Space((), ()), plan.compute, kernels, around)
        self.shapes = Shapes(self.contraction, self.operands, self.host)

    def module(self) -> Module:
        if self.by_gemm:
            return Module(self.view(self.calling()), Traffic(frozenset()))
        plan, results = self.plan, self.op.results
        batched = bool(self.contraction.batch)
        dot = self.host.dtype(plan.dot) if plan.dot else f"{self.operands.matrices[0].name}.dtype"
        extra: dict[str, Any] = {
            "family": "contraction",
            "gemm": None,
            "batched": batched,
            "batch_factor": "n_batch * " if batched else "",
            "sums": self.contraction.sums,
            "whole_rows": plan.whole_rows,
            "stage_bytes": self.stage_bytes(),
            "cols_last": self.cols_last(),
            "summed": "n_summed" if plan.skips else "n_steps" if self.operands.group_size else "n_inner",
            **self.groups(),
            "specialises": self.specialises,
            "combined_rows": COMBINED_ROWS,
            "slices": plan.slices,
            "slicer": SLICERS[plan.slices],
            "slicing": {2: "Half by half", 4: "Quarter by quarter"}[plan.slices],
            "halved": plan.halved,
            "turns": len(self.contraction.products) if plan.takes_turns else 0,
            "counts": self.shapes.counts(tuple(COUNTS)),
            "is_traced": self.is_traced,
            "is_empty": " or ".join(f"{COUNTS[role]} == 0" for role in self.shapes.present(("batch", "rows", "cols"))),
            "merged": self.shapes.merged_inputs(),
            **self.by_name(),
            "converts": plan.dot is not None,
            "dot_dtype": dot,
            "dot": "dot" if plan.dot else dot,
            "widened": plan.widened,
            "is_told_accumulator": "ACC" in plan.pointers.constexprs,
            "made": [(result.output.name, self.shapes.made(result)) for result in results],
            "result": ", ".join(map(self.shapes.returned, results)),
            "part_dtype": self.part_dtype(),
            "pointers": self.one(plan.pointers),
            "parts": self.one(plan.parts),
            "combine": self.one(plan.combine) | {"launch_of_parts": self.launch_of(plan.combine, **ALIKE)},
            "descriptors": None,
            "shares": None,
        }
        if plan.descriptors is not None:
            extra |= self.described(plan.descriptors)
        kinds = frozenset(kind for kind in ("pointers", "descriptors", "shares") if getattr(plan, kind))
        return Module(self.view(extra), Traffic(kinds, summing=self.summing()))

    def calling(self) -> dict[str, Any]:
        """What the template sees of a function that calls gemm."""
        (result,) = self.op.results
        name, merged = result.output.name, self.shapes.merged_inputs()
        sides = map(self.shapes.inner_last, sorted(self.operands.matrices, key=lambda operand: operand.side))
        precision = [f'"{self.op.precision}"'] if self.op.precision != "ieee" else []
        returned = self.shapes.returned(result)
        roles = tuple(role for role in COUNTS if any(COUNTS[role] in one["merged"] for one in merged))
        return {
            "family": "contraction",
            "gemm": {
                "passed": ", ".join([*sides, *precision]),
                "result": name,
                "returns": returned if returned != name else "",
            },
            "counts": self.shapes.counts(roles) if roles else None,
            "merged": merged,
        }

    def summing(self) -> Summing:
        plan = self.plan
        return Summing(
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

    def sides(self) -> tuple[int, int]:
        """How many matrices are read of the left side, and of the right."""
        left = sum(operand.side == 0 for operand in self.operands.matrices)
        return left, len(self.operands.matrices) - left

    def width(self) -> int:
        sizes = dict(self.op.sizes)
        width = math.prod(sizes[axis] for axis in self.contraction.cols)
        return max(16, 1 << (width - 1).bit_length())

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

    @property
    def is_traced(self) -> bool:
        """Whether a trace has lengths and strides as symbols, where rules want numbers."""
        return self.around.register == "triton_op"

    def cols_last(self) -> str:
        """Whether columns of a right matrix lie next to one another in memory."""
        rights = [operand for operand in self.operands.matrices if operand.side == 1]
        places = [self.contraction.roles(operand.tensor.type.axes).index("cols") for operand in rights]
        steps = [f"{operand.name}.stride({at})" for operand, at in zip(rights, places, strict=True)]
        if self.is_traced:
            steps = [f"int({step})" for step in steps]
        one = [f"{step} == 1" for step in steps]
        for n, operand in enumerate(rights):
            if operand.tensor.default is not None:
                one[n] = (
                    f"({operand.name} is not None and {one[n]})"
                    if len(one) > 1
                    else f"{operand.name} is not None and {one[n]}"
                )
        return " or ".join(one) or "False"

    def groups(self) -> dict[str, str]:
        """How blocks keep to groups of the inner axes that are scaled by themselves."""
        size = self.operands.group_size
        if not size:
            return {"group_size": "", "block_end": "n_inner", "whole_blocks": ""}
        is_number = size.isdigit()
        longest = str(1 << (int(size) - 1).bit_length()) if is_number else ""
        return {
            "group_size": size,
            "block_end": f"(group + 1) * {size}",
            "whole_blocks": "" if is_number else f" and {size} % {SHORTEST} == 0",
            "group_block": longest or f"max({SHORTEST}, tensors.power_of_two({size}))",
        }

    def described(self, kernel: Kernel) -> dict[str, Any]:
        """The kernel that copies tiles by descriptors, and the one of what is left of them after whole rounds."""
        plan, shares, joined = self.plan, self.plan.shares, self.operands.joined
        vectors = [line for line in (*kernel.setup, *kernel.body) if "_desc." not in line.text]
        needed = positions_in(vectors)
        names = [argument.spelling for argument in kernel.arguments]
        turns = f"{len(self.contraction.products)} * " if plan.takes_turns else ""
        grouped = f"n_groups * tensors.cdiv({self.operands.group_size}, block_k)"
        view = {
            "descriptors": self.one(kernel),
            "shares": shares and self.one(shares),
            "shared_terms": f"{turns}n_inner" if shares else "0",
            "tile_steps": turns + (grouped if self.contraction.groups else "tensors.cdiv(n_inner, block_k)"),
            "joined": None,
            # Whether a side has more than whole blocks, which descriptors copy.
            "masks_inner": mentions(vectors, "inner") or mentions(vectors, "inner_mask"),
            "positions": dict.fromkeys(POSITIONS, any(needed.values())),
            "share_positions": needed,
            "described": self.descriptors(names),
            "stored": [
                {"name": result.output.name, "is_optional": bool(result.when)}
                for result in self.op.results
                if f"{result.output.name}_desc" in names
            ],
            "stored_width": "block_n" if plan.whole_rows else f"block_n // {plan.slices}",
        }
        if joined is not None:
            view["joined"] = {
                "name": joined.name,
                "first": joined.first.name,
                "second": joined.second.name,
                "flag": joined.flag.lower(),
                "comes_first": joined.flag,
                "sum": joined.sum,
                "first_sum": joined.sums[0],
                "second_sum": joined.sums[1],
            }
        return view

    def descriptors(self, names: list[str]) -> list[dict[str, str]]:
        """What is described of matrices: one each, or where products take turns, those of a side together."""
        # Of the right one tiles have more rows, so that a copy pays where the left one has many.
        blocks = "block_m, block_k", f"{'block_n // 2' if self.plan.halved else 'block_n'}, block_k, n_rows"
        matrices, inner_last = self.operands.matrices, self.shapes.inner_last
        if self.plan.takes_turns:
            sides = [[operand for operand in matrices if operand.side == side] for side in (0, 1)]
            return [
                {
                    "targets": tuple_text([f"{operand.name}_desc" for operand in side]),
                    "flag": flag.lower(),
                    "matrices": tuple_text([*map(inner_last, side)]),
                    "blocks": block,
                    "perhaps": "",
                }
                for flag, side, block in zip(TURNS.values(), sides, blocks, strict=True)
            ]
        return [
            {
                "targets": f"{operand.name}_desc",
                "flag": operand.flag.lower(),
                "matrices": inner_last(operand),
                "blocks": blocks[operand.side],
                "perhaps": operand.name if operand.tensor.default is not None else "",
            }
            for operand in matrices
            if f"{operand.name}_desc" in names
        ]

    @property
    def specialises(self) -> bool:
        """Whether the kernel is warp-specialised: several matmuls of plain matrices."""
        several = len(self.contraction.sums) > 1 and not self.operands.joined
        return several and self.contraction.is_plain

    def part_dtype(self) -> str:
        dtypes = {"ACC": "dtypes.torch_dtype(accumulator)", "tl.float32": "torch.float32", "tl.int32": "torch.int32"}
        return (dtypes | {"COMPUTE": "dtypes.torch_dtype(compute)"})[self.plan.accumulator]

    # Launches

    def one(self, kernel: Kernel) -> dict[str, Any]:
        """A kernel and its launch."""
        return kernel_view(kernel) | {"launch": self.launch_of(kernel)}

    def launch_of(self, kernel: Kernel, **given: str) -> dict[str, str]:
        """The launch of a kernel, with what is given in place of lengths that have no name there."""
        values = {"COMPUTE": "compute", "DOT": "dtypes.triton_dtype(dot)", "ACC": "accumulator"}
        flags = [*TURNS.values(), *(operand.flag for operand in self.operands.matrices)]
        flags += [joined.flag] if (joined := self.operands.joined) else []
        values |= {flag: flag.lower() for flag in flags}
        return {
            "kernel": self.around.launcher(kernel.name),
            "passed": tuple_text([given.get(name, name) for name in kernel.passed]),
            "constants": ", ".join(
                [*(f"{name}={values.get(name, name)}" for name in kernel.constexprs), "INDEX=index"]
            ),
        }

    def by_name(self) -> dict[str, str]:
        """By what the launches of a call like this one are looked up, and what they are given to launch again."""
        if not self.knows:
            return {}
        names = [tensor.name for tensor in self.op.inputs] + [result.output.name for result in self.op.results]
        pairs = [f'"{name}": {name}' for name in [*names, *(param.name for param in self.op.params)]]
        apart = []
        if self.plan.descriptors and (joined := self.operands.joined):
            both = f"{joined.first.name}, {joined.second.name}"
            apart = [f"launch.distance({both})"]
            pairs.append(f'"{joined.name}": launch.first_of({both})')
        return {"lookup": self.lookup(*apart), "replay": "by_name", "by_name": f"{{{', '.join(pairs)}}}"}
