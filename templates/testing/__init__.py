"""The tests that all operators share, as classes that an operator's tests inherit from.

A subclass declares the operator: inputs, a reference, the lengths of axes. Without a GPU the kernels run in
Triton's interpreter.
"""

from .ahead import GradientInForwardTests, GradientInPlaceTests
from .elementwise import ElementwiseTests
from .gradients import GradientTests
from .harness import SUMS, TOLERANCES
from .inputs import Input
from .matmul import MatmulTests
from .registered import RegisteredTests
from .rowwise import RowwiseTests
from .steps import MatmulStepsTests, StepsTests, StreamStepsTests
from .streaming import StreamingTests

__all__ = [
    "SUMS",
    "TOLERANCES",
    "ElementwiseTests",
    "GradientInForwardTests",
    "GradientInPlaceTests",
    "GradientTests",
    "Input",
    "MatmulStepsTests",
    "MatmulTests",
    "RegisteredTests",
    "RowwiseTests",
    "StepsTests",
    "StreamStepsTests",
    "StreamingTests",
]
