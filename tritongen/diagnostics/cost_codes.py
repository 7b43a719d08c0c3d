"""The codes of warnings: costs that the math does not show, and what `tritongen explain` says of them."""

from __future__ import annotations

from .code import row

COSTS = (
    row(
        "TG901",
        "a reduction that is computed again for each row",
        """
        A kernel goes through rows, and reduces again for each what does not vary along them. Where the planner
        has the choice, such a reduction is a step of its own; with `fuse = false`, or in math that it does not
        split itself, the line has to be split.

            y = "sum(x * x, K) + sum(w * w, K)"    # x is [M, K], w is [N, K]: K is summed M * N times, twice
            x2 = "sum(x * x, K)"
            w2 = "sum(w * w, K)"
            y = "x2 + w2"                          # M + N times
        """,
    ),
    row(
        "TG902",
        "far more operations than bytes",
        """
        A step computes for much longer than memory takes for its tensors. Tensor cores compute sums of
        products of two tensors, of which each has an axis that the other lacks; all other math is done
        element by element, at a fifteenth of the rate or less.

            d = "sum((x - w) * (x - w), K)"                        # x is [M, K], w is [N, K]
            d = "sum(x * x, K) - 2 * sum(x * w, K) + sum(w * w, K)" # a matmul, with less accurate small distances
        """,
    ),
    row(
        "TG903",
        "a matmul of float32 without tensor cores",
        """
        A matmul multiplies in the dtype that torch's promotion gives its operands. float32 is multiplied in
        full, without tensor cores, unless [op] precision says otherwise. Often one small tensor of float32,
        such as a scale, turns a matmul of bfloat16 into one of float32.

            y = "sum(x * scale * w, K)"                    # x and w are bfloat16, scale is float32[K]
            y = "sum(x * cast(scale, bfloat16) * w, K)"

            [op]
            precision = "bf16x6"                           # as exact as float32, and twice as fast
        """,
    ),
    row(
        "TG904",
        "an intermediate that is larger than all arguments and results",
        """
        What no single kernel computes is stored between steps. Here such a tensor takes more memory than all
        that goes in and comes out. `tritongen plan` shows the steps, and says of scores of attention why they
        are stored.
        """,
    ),
    row(
        "TG905",
        "positions in int64 where int32 does",
        """
        int32 holds positions along axes of up to 2,147,483,647 elements in half the bytes, and these are a
        good part of what a step reads.

            i = "int64[N]"          # y = "take(t, i, V)", t is [V]
            i = "int32|int64[N]"
        """,
    ),
)
