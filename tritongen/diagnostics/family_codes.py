"""The codes of math that no family can plan, and what `tritongen explain` says of them."""

from __future__ import annotations

from .code import row

FAMILIES = (
    row(
        "TG601",
        "math that no kernel computes",
        """
        In practice a matmul of integers: a sum of products whose sides each have an axis that the other lacks. Its
        operands are floats or int8, or computed of them, and of int8 both have all axes that are summed.

            y = "gelu(sum(x * w, K) + bias)"         # x is [M, K], w is [N, K]
            y = "sum(a * b, K)"                      # wrong: a is int32
            y = "sum(cast(a, float32) * b, K)"
            y = "sum(a * b, J, K)"                   # wrong: a is int8 and [M, J, K], b is int8 and [K, N]
            y = "sum(cast(a, float16) * b, J, K)"    # the side without J is multiplied by a sum over J
        """,
    ),
    row(
        "TG604",
        "a gradient that does not exist",
        """
        Gradients are taken by float inputs on which the results depend smoothly. Leave other inputs out of wrt, and
        those of float8, to which a gradient would be rounded without a scale. `digamma` and `heaviside` have no
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
        "a saved value that the gradient does not read",
        """
        `save` lists the lines of [compute] that the forward keeps for the backward. A line that the gradient does not
        read would only cost memory. Without `save`, one value per row is kept, and the rest is recomputed.

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
        "a schedule that does not apply to these kernels",
        """
        Tiles of a contraction are at least 16 x 16 x 16. Only a contraction sums an axis in blocks, and so only it has
        block_k. Attention and similar kernels hold full heads, but stream an axis in a pipelined loop: they have
        num_stages, and no block_k. Elementwise and row-wise kernels have neither.

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
        With write = "forward" or "in_place" the forward writes the gradient for an incoming gradient of 1, and the
        backward scales each row by one factor. So the operator must reduce rows in a single step, without a matmul
        before it, say, and have a single differentiable result, with one value per row; inputs in wrt must have all
        axes, and not be optional. Nothing else is saved (no `save`), and the operator cannot be registered with torch,
        where every call would compute the gradient. In place, no line may `take` an input in wrt from other columns.

            [compute]
            loss = "logsumexp(x, V) - take(x, target, V)"

            [grad]
            wrt = ["x"]
            write = "in_place"             # x is [N, V], the loss [N]
        """,
    ),
    row(
        "TG609",
        "an option that changes nothing",
        """
        precision says how matmuls multiply float32, and deterministic = false permits atomics where a gradient of take
        adds up elements. Where no step does that, forward or backward, the option is a mistake.

            [op]
            precision = "bf16x3"           # wrong for y = "gelu(x)", right for y = "sum(x * w, K)"
        """,
    ),
    row(
        "TG610",
        "a gradient that is no spec",
        """
        `tritongen grad` prints the derived gradient as a spec, and checks it as any other. A line of it that a spec
        cannot have, or that no kernel computes without what the forward saves, is refused. `tritongen build` of the
        spec itself computes such gradients, too.
        """,
    ),
)
