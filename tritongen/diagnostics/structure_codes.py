"""The codes of a spec's structure: what `tritongen explain` says of the file, its tables, types and params."""

from __future__ import annotations

from .code import row

STRUCTURE = (
    row(
        "TG100",
        "the file cannot be read",
        """
        The system refuses to open it: check its permissions, or where a link points.
        """,
    ),
    row(
        "TG101",
        "the file is not valid TOML",
        """
        The TOML parser stopped here. Usual reasons: a string without its quotes, a key given twice,
        an inline table over several lines.

            y = x * 2          # wrong: an expression is a string
            y = "x * 2"
        """,
    ),
    row(
        "TG102",
        "the file is not UTF-8 text",
        """
        TOML is UTF-8. Save the file in that encoding; an editor calls it "UTF-8" or "Unicode".
        """,
    ),
    row(
        "TG103",
        "an unknown table or key",
        """
        Unknown keys are errors: most of them are misspellings, which would be ignored otherwise.

            [op]
            nmae = "softmax"   # wrong
            name = "softmax"

        docs/spec.md and `tritongen schema` list the known ones.
        """,
    ),
    row(
        "TG104",
        "a table or key is missing",
        """
        A spec has at least [op] with a name, [inputs], [compute] and [outputs].

            [op]
            name = "double"
            [inputs]
            x = "float[...]"
            [compute]
            y = "x * 2"
            [outputs]
            y = "x"
        """,
    ),
    row(
        "TG105",
        "a value of the wrong type",
        """
        The key wants another TOML type: a string in quotes, a number without them, true or false,
        an array in brackets, or a table in braces.

            num_warps = "4"    # wrong
            num_warps = 4
        """,
    ),
    row(
        "TG106",
        "a word that is not allowed here",
        """
        The key takes one of a few words; the message lists them.

            n = { type = "integer" }   # wrong
            n = { type = "int" }
        """,
    ),
    row(
        "TG107",
        "a value is empty",
        """
        A table, array or string that must say something is empty. Fill it, or leave the key out.
        """,
    ),
    row(
        "TG108",
        "a number does not fit in 64 bits",
        """
        TOML integers, and those of kernels, have 64 bits. Write a float where you mean one: 1e20.
        """,
    ),
    row(
        "TG109",
        "the path of a spec cannot be written into a header",
        """
        Generated files name their spec in a comment, so its path must be printable: no line ends,
        control characters or undecodable bytes. Nor may it contain "coding:" or "coding=", by which
        Python would take the next word for the encoding of the generated file. Rename the file.
        """,
    ),
    row(
        "TG110",
        "not a name",
        """
        Names become Python identifiers: ASCII letters, digits and underscores, with a letter first.

            "2x" = "float[N]"  # wrong
            x2 = "float[N]"
        """,
    ),
    row(
        "TG111",
        "a name that Python needs",
        """
        A keyword of Python cannot be a name. Any other can: generated code renames its own where
        the two would meet. An operator cannot be called configs, kernels or op, as modules of its
        package are.

            lambda = 0.5       # wrong
            lambda_ = 0.5
        """,
    ),
    row(
        "TG113",
        "one name for two things",
        """
        Inputs, params and lines of [compute] share one set of names, and none is assigned twice.

            y = "x + 1"
            y = "y * 2"        # wrong (TOML itself refuses this one)
            z = "y * 2"
        """,
    ),
    row(
        "TG114",
        "a name that is not declared",
        """
        [outputs] and `save` name lines of [compute]; `wrt` and [test] name inputs; a bound in
        [test] names an axis of an input.
        """,
    ),
    row(
        "TG115",
        "the same value twice in a list",
        """
        Each element of a list counts once. Remove the second.
        """,
    ),
    row(
        "TG116",
        "an invisible character",
        """
        What a spec says goes into comments and docstrings, where controls of text direction, zero-width
        characters and the like would let the text look like another.

            summary = "a\\u202eb"    # wrong
            summary = "ab"
        """,
    ),
    row(
        "TG120",
        "a tensor type without axes",
        """
        A type is a dtype and axes in brackets.

            x = "float"        # wrong
            x = "float[..., N]"
            x = "float[...]"   # any shape
            x = "float[]"      # a tensor of one number
        """,
    ),
    row(
        "TG121",
        "a tensor type that cannot be read",
        """
        The grammar is  DTYPE[AXIS, AXIS, ...]  and, for an optional input,  DTYPE[...] = NUMBER .
        DTYPE is a class (float, int, bool, number, any, float8), dtypes joined by |, or a name of [types].
        An axis is N, C=3 (of fixed length), `...` (first only), or a group (H=2 D).

            x = "float[N; M]"  # wrong
            x = "float[N, M]"
        """,
    ),
    row(
        "TG122",
        "an unknown dtype",
        """
        Classes: float, int, bool, number (float and int), any, and float8 apart from them. Dtypes have
        torch's names: float16, bfloat16, float32, float64, uint8, int8, int16, int32, int64, bool,
        float8_e4m3fn, float8_e5m2.

            x = "half[N]"      # wrong
            x = "float16[N]"

        Inputs that must agree share a type:  [types]  T = "float"  and then  x = "T[N]".
        An output has one dtype: that of an input, one spelled out, or "auto".
        """,
    ),
    row(
        "TG123",
        "not the name of an axis",
        """
        Axes are named in capitals, so that they are not taken for values.

            x = "float[n]"     # wrong
            x = "float[N]"
            x = "float[3]"     # wrong
            x = "float[C=3]"
        """,
    ),
    row(
        "TG124",
        "an axis twice in one tensor",
        """
        Every dimension is an axis of its own. Two dimensions of equal length need two names.

            x = "float[N, N]"  # wrong
            x = "float[M, N]"
        """,
    ),
    row(
        "TG125",
        "`...` in a place where it cannot be",
        """
        `...` stands for any number of leading axes, so it comes first, once, and alone.

            x = "float[N, ...]"    # wrong
            x = "float[..., N]"
        """,
    ),
    row(
        "TG126",
        "not the length of an axis",
        """
        A fixed length is an integer, at least 1.

            x = "float[C=0]"   # wrong
            x = "float[C=3]"
        """,
    ),
    row(
        "TG127",
        "one axis with two lengths",
        """
        An axis means one length throughout a spec.

            x = "float[N, C=3]"
            w = "float[C=4]"   # wrong
            w = "float[C=3]"   # or "float[C]"
        """,
    ),
    row(
        "TG128",
        "a default that the input cannot hold",
        """
        `= NUMBER` after a type makes an input optional: None stands for that number. It must
        be one that a tensor of the type could hold.

            bias = "int[N] = 0.5"      # wrong
            bias = "float[N] = 0.5"
            mask = "bool[N] = true"
        """,
    ),
    row(
        "TG129",
        "an axis and a value of one name",
        """
        In `sum(x, N)` it must be plain that N is an axis. Rename the axis or the value.
        """,
    ),
    row(
        "TG130",
        "a param of no type",
        """
        A param's type is that of its default. One that the caller must give has a type instead.

            n = {}                     # wrong
            n = { type = "int" }
            n = 1
        """,
    ),
    row(
        "TG131",
        "a param's default and bounds contradict each other",
        """
        The default lies from min to max, and min is no more than max.

            p = { default = 2.0, min = 0, max = 1 }    # wrong
            p = { default = 0.5, min = 0, max = 1 }
        """,
    ),
    row(
        "TG132",
        "a default that is not a choice",
        """
            approximate = { choices = ["none", "tanh"], default = "erf" }      # wrong
            approximate = { choices = ["none", "tanh"], default = "none" }
        """,
    ),
    row(
        "TG133",
        "keys of a param that do not go together",
        """
        A param is a number (default or type, min, max), a flag (default or type), or one of a few
        words (choices, default).

            mode = { default = "none" }                            # wrong: which others?
            mode = { default = "none", choices = ["none", "tanh"] }
            n = { default = 0.5, type = "int" }                    # wrong
            n = { default = 0.5 }
        """,
    ),
    row(
        "TG140",
        "a registration that torch refuses",
        """
        A registered operator is torch.ops.<namespace>.<name>. The namespace is a name such as Python's,
        and none that torch has for its own operators.

            [torch]
            register = "custom_op"
            namespace = "aten"                                     # wrong
            namespace = "my_project"
        """,
    ),
    row(
        "TG141",
        "an empty range",
        """
        Emitted tests draw an input's values from low up to, and not including, high.

            [test]
            target = { low = 0, high = "V" }
        """,
    ),
    row(
        "TG142",
        "an axis that this benchmark cannot sweep",
        """
        The benchmark of a matmul goes by rows, columns or the summed axis where these are one axis each, that of
        attention by its rows or what streams past them. Others go by numbers of elements.

            [bench]                        # of y = "sum(x * w, K)" with x[B, M, K] and w[B, K, N]
            B = 16                         # right: one length
            M = [1, 16, 256]               # right
            # B = [1, 4, 16]               # wrong
        """,
    ),
)
