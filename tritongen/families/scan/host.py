"""The view of a function that scans rows: that of one that reduces them, with other kernels."""

from __future__ import annotations

from ...emit.module import Around
from ..rowwise.host import RowsModule
from ..rowwise.kernels import RowKernels
from .kernels import plan_scans
from .program import ScanProgram


class ScanModule(RowsModule):
    def __init__(self, program: ScanProgram, autotune: bool, around: Around) -> None:
        self.scans = program
        super().__init__(program, autotune, around)

    def planned(self, program: ScanProgram) -> RowKernels:
        return plan_scans(program)
