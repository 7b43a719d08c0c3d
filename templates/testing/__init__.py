"""The tests that all operators share, as classes that an operator's tests inherit from.

A subclass declares the operator: inputs, a reference, the lengths of axes. Without a GPU the kernels run in
Triton's interpreter.
"""

from .ahead import GradientInForwardTests, GradientInPlaceTests
from .between import StoresBetween, StreamsBetween
from .elementwise import ElementwiseTests, RoundedGradients
from .float8 import Float8Tests
from .gradients import GradientTests
from .harness import SUMS, TOLERANCES
from .inputs import Input
from .matmul import MatmulGradients, MatmulTests
from .one_file import file_of, of, tables_in
from .operator import ForwardTests, MapKernels
from .original import OriginalTests
from .own_math import OwnMathTests
from .registered import RegisteredTests
from .rowwise import RowKernels, RowwiseTests
from .searched import SearchedTests
from .sorting import SortTests
from .steps import MatmulStepsTests, StepsTests, StreamStepsTests
from .streaming import StreamingGradients, StreamingTests
from .ties import TiesTests

__all__ = [
    "SUMS",
    "TOLERANCES",
    "ElementwiseTests",
    "Float8Tests",
    "ForwardTests",
    "GradientInForwardTests",
    "GradientInPlaceTests",
    "GradientTests",
    "Input",
    "MapKernels",
    "MatmulGradients",
    "MatmulStepsTests",
    "MatmulTests",
    "OriginalTests",
    "OwnMathTests",
    "RegisteredTests",
    "RoundedGradients",
    "RowKernels",
    "RowwiseTests",
    "SearchedTests",
    "SortTests",
    "StepsTests",
    "StoresBetween",
    "StreamStepsTests",
    "StreamingGradients",
    "StreamingTests",
    "StreamsBetween",
    "TiesTests",
    "file_of",
    "of",
    "tables_in",
]
