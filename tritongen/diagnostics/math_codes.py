"""The codes of the math: what `tritongen explain` says of expressions, axes and dtypes."""

from __future__ import annotations

from .code import row

NAMES = (
    row(
        "TG201",
        "not an expression",
        """
        Expressions have Python's syntax: operators, function calls and parentheses. The caret is where
        reading stopped. A line's name is its key in TOML, so an expression holds no assignment; comments
        of TOML follow the string.

            y = "x +"              # wrong
            y = "exp(x"            # wrong
            y = "x && mask"        # wrong: Python's operator is `and`
            y = "exp(x) + 1"
        """,
    ),
    row(
        "TG202",
        "something that the language does not have",
        """
        An expression is made of names, numbers, operators and calls of functions by their name alone:
        no indexing, attributes, methods, lambdas, comprehensions, strings, lists or `:=`. What a
        method does, a function does; what an index does, `take` does. `a if c else b` chooses by flags
        and words of [params], `where` by the values of tensors.

            y = "x.sum(N) / x[0]"                  # wrong
            y = "sum(x, N) / take(x, 0, N)"
            y = "x if x > 0 else 0"                # wrong
            y = "where(x > 0, x, 0)"

        A reference (in [reference]) is made of calls of torch's functions and of tensors' methods,
        operators and literals; nothing that reaches files, memory or Python itself. A peer of a benchmark
        (in [bench]) may have lambdas besides.
        """,
    ),
    row(
        "TG203",
        "an undefined name",
        """
        A line of [compute] sees the inputs, the params, the lines above it, and inf, nan, pi and e. An axis
        is no value: size(N) is its length, index(N) the position along it.

            y = "x / N"            # wrong
            y = "x / size(N)"
            y = "where(true, x, 0)"        # wrong: Python writes True
        """,
    ),
    row(
        "TG204",
        "an unknown function",
        """
        Functions have torch's names; docs/spec.md lists them all. What is missing is often an expression of
        others: dropout needs random numbers, which the language does not have.

            y = "sigmod(x)"        # wrong
            y = "sigmoid(x)"
        """,
    ),
    row(
        "TG205",
        "arguments that do not fit a function",
        """
        There are too many or too few, or one is not of the kind that the function wants. The help shows the
        call. Options of reductions (correction, p) are numbers that the spec spells out, and a word is compared
        with one of its param's choices.

            y = "maximum(x)"                       # wrong
            y = "maximum(x, 0)"
            y = "var(x, N, correction=k)"          # wrong
            y = "var(x, N, correction=0)"
        """,
    ),
    row(
        "TG206",
        "a keyword that the function does not have",
        """
        Keywords are those of torch's functions. Reductions name their axes instead of `dim`, and need no
        `keepdim`: what was reduced broadcasts by the names of its axes.

            y = "x - mean(x, dim=-1, keepdim=True)"        # wrong
            y = "x - mean(x, N)"
            y = "leaky_relu(x, slope=0.1)"                 # wrong
            y = "leaky_relu(x, negative_slope=0.1)"
        """,
    ),
    row(
        "TG207",
        "a name that nothing uses",
        """
        An input, a param or a line of [compute] neither goes into another line nor into [outputs]. Most of
        these are misspellings elsewhere. Use it, return it, or delete it.

            [compute]
            scaled = "x * 2"       # wrong: nothing uses it
            y = "x + 1"
        """,
    ),
    row(
        "TG208",
        "a number that cannot be used",
        """
        Arithmetic of numbers alone is done when the spec is read. Integers have 64 bits; a division by zero,
        or a root of a negative number, has no value. Functions other than the operators are for tensors and params.
        A number that a function may give as it is, such as a bound of `clamp`, has to fit the dtype of the integers
        beside it.

            y = "x * 2**100"       # wrong
            y = "x * 2.0**100"
            y = "x * (1 / 0)"      # wrong
            y = "x * inf"
            y = "x * sqrt(2)"      # wrong
            y = "x * 2 ** 0.5"
            y = "clamp(u, 0, 300)" # wrong for u = "uint8[N]"
            y = "clamp(cast(u, int32), 0, 300)"
        """,
    ),
    row(
        "TG209",
        "a required input after an optional one",
        """
        Inputs become the arguments of a Python function, in their order, and those with a default come last.

            weight = "float[N] = 1"        # wrong: x follows
            x = "float[..., N]"

            x = "float[..., N]"
            weight = "float[N] = 1"
        """,
    ),
)

AXES = (
    row(
        "TG301",
        "not an axis",
        """
        Axes are named, without quotes, as the types of the inputs name them; positions such as -1 mean nothing.
        `...` is an axis where an input has it.

            y = "sum(x, -1)"       # wrong
            y = "sum(x, 'N')"      # wrong
            y = "sum(x, N)"
            y = "sum(x, ..., N)"
        """,
    ),
    row(
        "TG302",
        "an axis that the value does not have",
        """
        A reduction is over axes of its argument, each named once, and `take` is along one of them. A sum over an
        axis that a value lacks would just multiply it by a length. Running sums are along one named axis.

            # x = "float[M, N]", w = "float[N]"
            y = "sum(w, M)"        # wrong: w has only N
            y = "sum(x * w, M)"
        """,
    ),
    row(
        "TG303",
        "axes of an output that differ from its math",
        """
        Axes in [outputs] give the order of the dimensions. They must be all the axes of the value, and no others.

            # x = "float[M, N]"
            [compute]
            y = "x * 2"
            [outputs]
            y = "x[M]"             # wrong: N was not reduced
            y = "x[N, M]"          # transposed
        """,
    ),
    row(
        "TG304",
        "an axis that only optional inputs have",
        """
        An optional input may be None, and then nothing would tell the length of such an axis. Let an input that
        is required have it too. Likewise one input at least must be required.

            x = "float[N]"
            bias = "float[K] = 0"          # wrong
            bias = "float[N] = 0"
        """,
    ),
    row(
        "TG305",
        "`...` where one axis is needed",
        """
        `...` stands for any number of axes, and `index` and `take` are along one. Reductions take it.

            # x = "float[...]"
            y = "x * index(...)"   # wrong
            # x = "float[..., N]"
            y = "x * index(N)"
        """,
    ),
    row(
        "TG306",
        "a group of unknown lengths",
        """
        A dimension that is a group of axes tells one of their lengths. The others must be fixed, or the axes of
        other inputs.

            x = "float[S, (H D)]"          # wrong
            x = "float[S, (H D=64)]"
            weight = "float[D]"            # or so, beside x

        Or [axes] computes them of params:

            G = "groups"                   # of an input "float[B, (G D), H]"
        """,
    ),
    row(
        "TG307",
        "a length that cannot be computed",
        """
        The lengths of [axes] are computed before there is any tensor: of lengths of other axes, integer params and
        integers, by + - * // % and minimum, maximum. What divides is at least 1, whatever a caller passes: a number,
        or a param whose `min` is 1 or more.

            P = "(N - K) / stride + 1"     # wrong: a length is an integer
            P = "(N - K) // stride + 1"    # wrong where stride may be 0
            stride = { default = 1, min = 1 }
            E = "sum(x)"                   # wrong: x has no values yet
        """,
    ),
    row(
        "TG308",
        "lengths that are computed of each other",
        """
        The length of each axis follows from those of inputs, from params and from numbers, if by way of others.

            P = "Q + 1"                    # wrong
            Q = "P - 1"
            Q = "N - K"
        """,
    ),
)

DTYPES = (
    row(
        "TG401",
        "a dtype that the function is not for",
        """
        Bit operations are for integers and booleans, arithmetic such as `-` for numbers, and mean, var, norm,
        softmax and logsumexp for floats, as in torch. `&` and `|` bind more tightly than comparisons, so these
        need parentheses.

            y = "where(x > 0 & x < 1, x, 0)"       # wrong: it means x > (0 & x) < 1
            y = "where((x > 0) & (x < 1), x, 0)"
            y = "mean(i, N)"                       # wrong for integers
            y = "mean(cast(i, float32), N)"

        An input of `any` may be a boolean, and one of `number` an integer: declare what the math is for.
        """,
    ),
    row(
        "TG402",
        "a function that differs between integers and floats",
        """
        Rounding, division with remainder and powers are computed differently for integers and for floats, and an
        input of class `number` or `any` may be either.

            # x = "number[N]"
            y = "x // 2"           # wrong
            # x = "float[N]" or "int[N]"
            y = "x // 2"
        """,
    ),
    row(
        "TG403",
        "an index that is not an integer",
        """
        `take(x, i, N)` reads x at position i along N.

            # i = "number[...]"
            y = "take(table, i, V)"                # wrong
            # i = "int[...]", or i = "int64[...]"
            y = "take(table, i, V)"
        """,
    ),
    row(
        "TG404",
        "not a dtype to cast to",
        """
        A cast is to one dtype, by its name alone, or to that of an input.

            y = "cast(x, float)"           # wrong: which of them?
            y = "cast(x, 'float32')"       # wrong
            y = "cast(x, float32)"
            y = "cast(i, x)"               # x's dtype
        """,
    ),
    row(
        "TG405",
        "a cast of a number",
        """
        Numbers and params have no dtype of their own: they take that of the tensor that they meet. A param may be
        cast to the dtype of an input, as in cast(value, x).

            y = "x * cast(2, float32)"             # wrong
            y = "cast(x, float32) * 2"
        """,
    ),
)
