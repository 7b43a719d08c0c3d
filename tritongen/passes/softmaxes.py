"""Softmaxes in the form in which kernels stream them, however they are written."""

from __future__ import annotations

from ..lang.ir import Op
from .masked_powers import with_masked_powers
from .natural_powers import with_natural_powers
from .row_choices import with_rows_chosen_outside


def with_plain_softmaxes(op: Op) -> Op:
    """The operator, whose reductions have names, with exponentials below maxima and conditions where kernels look for
    them: the operator itself where they are.
    """
    return with_masked_powers(with_rows_chosen_outside(with_natural_powers(op)))
