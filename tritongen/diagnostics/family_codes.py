"""The codes of math that no family can plan, and what `tritongen explain` says of them."""

from __future__ import annotations

from .code import row

FAMILIES = (
    row(
        "TG601",
        "a contraction that tensor cores do not compute",
        """
        A sum of products whose sides each have an axis that the other lacks is a contraction (a matmul). Its operands
        are floats or int8, or computed of them, and both have all axes that are summed.

            y = "gelu(sum(x * w, K) + bias)"         # x is [M, K], w is [N, K]
            y = "sum(a * b, J, K)"                   # wrong: a is [M, J, K], b is [K, N]
            y = "sum(sum(a, J) * b, K)"
        """,
    ),
    row(
        "TG602",
        "a scan",
        """
        cumsum and cumprod parse and type-check, but no kernel family of this version plans them.

            y = "cumsum(x, N)"
        """,
    ),
    row(
        "TG603",
        "a line that cannot be stored",
        """
        A line with a reduction behind it is stored by one step, and taken from by the next; so is what reductions over
        different axes are made of. It needs a dtype that is known before the call: a float of the inputs, or int32,
        int64 or bool. Cast it, or take from the inputs and then reduce.

            [inputs]
            x = "number[M, N]"
            i = "int64[T]"

            [compute]
            y = "take(sum(x, N), i, M)"            # wrong
            y = "take(sum(cast(x, float32), N), i, M)"
            y = "sum(take(x, i, M), N)"
        """,
    ),
    row(
        "TG604",
        "a gradient that is not there",
        """
        A gradient is by a float input, and zero where nothing changes smoothly with it: leave such an input out of wrt,
        and one of float8, to which a gradient would be rounded without a scale. `digamma` and `heaviside` have no
        derivative here.

            [inputs]
            table = "float[V, D]"
            tokens = "int64[S]"

            [compute]
            y = "take(table, tokens, V)"

            [grad]
            wrt = ["tokens"]               # wrong: integers
            wrt = ["table"]
        """,
    ),
    row(
        "TG606",
        "a value that is saved for nothing",
        """
        `save` has the lines of [compute] that the forward keeps for the backward. A line that the gradient does not
        read would only cost memory. Without `save`, numbers for each row are kept and all else is computed again.

            [compute]
            total = "sum(x, N)"
            y = "x * x + total"

            [grad]
            wrt = ["x"]
            save = ["total"]               # wrong: dx is 2 * x * dy + sum(dy, N)
        """,
    ),
    row(
        "TG607",
        "a schedule that these kernels do not have",
        """
        Tiles of a contraction have at least 16 rows and columns, and as many terms. Only a contraction sums an axis
        block by block, and so has block_k. Attention and its like hold heads whole, but stream an axis in a pipelined
        loop, and so have num_stages.

            [schedule]                     # of y = "sum(x * w, K)"
            block_m = [64, 128]
            block_n = [128, 256]
            block_k = 64
            num_stages = [3, 4]            # wrong for y = "gelu(x)"
        """,
    ),
    row(
        "TG608",
        "a gradient that the forward cannot write",
        """
        With write = "forward" or "in_place" the forward writes the gradient as it is where that of the result is 1,
        and the backward multiplies each row by one number. So the operator reduces rows, and has one result with a
        gradient, with one number for each row; inputs in wrt have all axes, and are not optional. Nothing else is
        kept (no `save`), and no operator of torch's is registered, which would compute the gradient in every call.
        In place, no line takes an input in wrt from other columns.

            [compute]
            loss = "logsumexp(x, V) - take(x, target, V)"

            [grad]
            wrt = ["x"]
            write = "in_place"             # x is [N, V], the loss [N]
        """,
    ),
)
