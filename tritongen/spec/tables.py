"""The tables and keys of a spec, and of the settings. `read` and `schema` both use them."""

from __future__ import annotations

from .nodes import Either, Entries, Fields, Flag, Integer, Many, Number, Text
from .params import instead_of_a_word
from .types import PRECISIONS, WRITES


def _sizes(says: str, most: int, power_of_two: bool = True) -> Either:
    one = Integer(says, 1, most, power_of_two)
    return Either(says, (one, Many(says, one)))


_TENSOR = Text(
    "a dtype and axes, such as \"float[..., N]\"; '= NUMBER' makes the input optional",
    pattern=r"^[A-Za-z0-9_| ]+\[.*\]\s*(=.*)?$",
)
_PARAM = Either(
    "a default value, or a table of default, type, choices, min and max",
    (
        Flag("a flag and its default"),
        Number("a number and its default"),
        Fields(
            "a param at length; without a default the caller must say it",
            {
                "default": Either(
                    "the value that it has where the caller says none",
                    (Flag("a flag"), Number("a number"), Text("one of the choices")),
                ),
                "type": Text("its type, where no default tells it", ("float", "int", "bool")),
                "choices": Many("the words that it may be", Text("a word")),
                "min": Number("the least that it may be"),
                "max": Number("the most that it may be"),
            },
        ),
    ),
    instead_of_a_word,
)
_LENGTH = Either(
    "the length of an axis: a number, or a formula",
    (
        Integer("a number", 1, (1 << 31) - 1),
        Text('arithmetic of lengths of other axes and of integer params, such as "(N - K) // stride + 1"'),
    ),
)
_BOUND = Either("a number, or an axis for its length", (Number("a number"), Text("an axis")))
_RANGE = Fields("a range", {"low": _BOUND, "high": _BOUND}, required=("low", "high"))

SPEC = Fields(
    "an operator's math over named axes",
    {
        "op": Fields(
            "the operator's name and summary",
            {
                "name": Text("the name of the function and of its folder"),
                "summary": Text("one line for the docstring"),
                "precision": Text("how matmuls of float32 multiply", choices=PRECISIONS),
                "deterministic": Flag("whether the same inputs give the same bits; without it, atomics may add up"),
            },
            required=("name",),
        ),
        "types": Entries(
            'dtypes that several inputs share, such as T = "float"',
            Text('a dtype class or dtypes, such as "float16|bfloat16"'),
        ),
        "inputs": Entries("tensors and their types", _TENSOR, needed=True),
        "params": Entries("scalars, which become keyword arguments", _PARAM),
        "axes": Entries("axes whose lengths are computed, each with its formula", _LENGTH),
        "compute": Entries(
            "the math, in order: one name and its expression a line",
            Text("an expression over inputs, params and earlier lines"),
            needed=True,
        ),
        "outputs": Entries(
            "the results, each with its dtype",
            Text(
                "'auto' for torch's promotion, an input for its dtype, or a dtype;"
                ' the order of axes may follow, as in "x[M, K]"'
            ),
            needed=True,
        ),
        "grad": Fields(
            "the derived gradient",
            {
                "wrt": Many("the inputs to differentiate by", Text("an input")),
                "save": Many(
                    "what the forward keeps for the backward; the rest is recomputed",
                    Text("a name of [compute]"),
                    least=0,
                ),
                "write": Text("where it is written: by the backward, or ahead by the forward", WRITES),
            },
            required=("wrt",),
        ),
        "reference": Fields(
            "an independent oracle for the emitted tests",
            {
                "torch": Text("a torch expression over the inputs and params"),
                "from": Text("the module that its other functions and classes are imported from, where it is there"),
            },
            required=("torch",),
        ),
        "schedule": Fields(
            "tiles and warps; they never change what is computed",
            {
                "block_m": _sizes("rows of a tile", 1 << 20),
                "block_n": _sizes("columns of a tile", 1 << 20),
                "block_k": _sizes("how much of its summed axis a contraction reads at once", 1024),
                "num_warps": _sizes("warps of a program", 32),
                "num_stages": _sizes("stages of a software pipeline", 32, power_of_two=False),
                "autotune": Flag("whether configurations are timed at the first call of a size"),
                "fuse": Flag("whether lines share kernels; false computes each in a step of its own, for debugging"),
            },
        ),
        "torch": Fields(
            "how torch knows the operator",
            {
                "register": Text(
                    "the kind of registration with torch.library",
                    ("none", "triton_op", "custom_op"),
                ),
                "namespace": Text(
                    "what torch.ops has the registered operator under, 'tritongen' if left out",
                    pattern=r"^[A-Za-z_][A-Za-z0-9_]*$",
                ),
            },
        ),
        "test": Entries(
            "where the values of inputs lie in the emitted tests, and how short axes are there",
            Either(
                "the range of an input's values, or the smallest length of an axis",
                (
                    _RANGE,
                    Integer("the smallest length of an axis", 1, 1 << 20),
                ),
                "x = { low = 0.5, high = 2 } for an input, N = 2 for an axis",
            ),
        ),
        "bench": Entries(
            "what the benchmark measures beside the reference, by names, and what inputs it draws",
            Either(
                "a peer, the range of an input's values, or the length of an axis",
                (
                    Fields(
                        "a torch expression",
                        {
                            "torch": Text("a torch expression over the inputs and params, and what is given"),
                            "given": Entries(
                                "what is computed once, and not measured",
                                Text("a torch expression over the inputs and params"),
                            ),
                            "compile": Flag("whether torch.compile compiles it"),
                            "function": Text("the path of a function of another package that the expression calls"),
                        },
                        required=("torch",),
                    ),
                    _RANGE,
                    Integer("the length of an axis", 1, (1 << 31) - 1),
                    Many("the lengths that the benchmark goes by", Integer("a length", 1, (1 << 31) - 1)),
                ),
                "name = { torch = ... } for a peer, M = 1 for an axis",
            ),
        ),
    },
    required=("op", "inputs", "compute", "outputs"),
    is_root=True,
)

SETTINGS = Fields(
    "the settings of tritongen",
    {
        "specs": Many("the folders and files of specs", Text("a path beside the settings")),
        "out": Text("the folder that generated folders go into"),
        "line-length": Integer("the longest line that black leaves", 40, 320),
        "runtime": Text("where generated operators have what they share", ("shared", "folder", "file")),
        "tests": Flag("whether generated operators have tests and a benchmark"),
    },
)
