"""What a spec says reaches generated files as data: its words are neither run nor taken for names of code."""

import ast
import functools
import inspect
import json
import re
from pathlib import Path

import pytest
import torch

from tests.harness.importing import module_at, with_runtime, written
from tritongen.emit.format import format_python
from tritongen.emit.statements import Raise
from tritongen.lang.literals import code_of, literal, prose
from tritongen.nest.values import expr
from tritongen.operator.compile import generate
from tritongen.spec.read import read_spec

HARMLESS = {True: "harmless", False: "harm less"}  # Words are told in quotes unless they are plain.
WORDS = [
    'x")\nopen("ran", "w").write("ran")\ndef _f(x):\n    pass#',
    "{open('ran', 'w')}",
    "{__import__('os').system('true')!r}",
    "a{b}",
    'it"s',
    "it's",
    "a{",
    "}a",
    '"',
    "'",
    '"""',
    "'''",
    '"""\nopen("ran", "w")\n"""',
    '\'"\'"""',
    "both 'single' and \"double\"",
    "\\",
    'ends in \\"',
    r"\d \N{DASH} \x00 \u0041",
    "two\nlines\tand a tab",
    "{{ m.name }}",
    "{% for x in y %}",
    "{# m #}",
    "# fmt: off",
    "a # comment",
    "# type: ignore",
    "n_cols",
    "N",
    "row_sizes x_ptr _fold(",
    "math. Any Callable[ functools. TensorDescriptor choose_splits",
    "torch.nan_to_num(x)",
    "no such choice",
    "größer, 矩阵",
    "one, two or three",
]
MAP = """
[op]
name = "words"
summary = SUMMARY
[inputs]
x = "float[..., N]"
[params]
mode = { choices = ["one", CHOICE], default = CHOICE }
other = { choices = [CHOICE] }
[compute]
y = EXPRESSION
[outputs]
y = "x"
[reference]
torch = REFERENCE
[grad]
wrt = ["x"]
"""
ROWS = MAP.replace("y = EXPRESSION", 'total = "sum(x, N)"\ny = EXPRESSION').replace("-x if", "total if")
REGISTERED = MAP + '[torch]\nregister = "custom_op"\n'
PRODUCT = """
[op]
name = "words"
summary = SUMMARY
[inputs]
x = "float[M, K]"
w = "float[K, N]"
[params]
mode = { choices = ["one", CHOICE], default = CHOICE }
other = { choices = [CHOICE] }
[compute]
p = "sum(x * w, K)"
y = EXPRESSION
[outputs]
y = "x"
"""
FAMILIES = {"map": MAP, "rows": ROWS, "registered": REGISTERED, "product": PRODUCT}


@functools.cache
def files(family: str, word: str) -> dict[str, str]:
    """What a spec becomes whose every text is about a word."""
    value = {"rows": "x * total", "product": "p"}.get(family, "x")
    expression = f"-{value} if mode == {word!r} and other != {word!r} else {value}"
    texts = {
        "SUMMARY": word,
        "CHOICE": word,
        "EXPRESSION": expression,
        "REFERENCE": f"-x if mode == {word!r} and other != {word!r} else x",
    }
    text = re.sub("|".join(texts), lambda found: json.dumps(texts[found[0]], ensure_ascii=False), FAMILIES[family])
    made = generate(read_spec("words.toml", text), ".")
    return {name: format_python(text) for name, text in made.items()}


def is_plain(word: str) -> bool:
    return re.fullmatch(r"[\w.+-]+", word) is not None


class Renamed(ast.NodeTransformer):
    """A tree with another word in its strings."""

    def __init__(self, word: str) -> None:
        self.word = word

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        if not isinstance(node.value, str):
            return node
        harmless = HARMLESS[is_plain(self.word)]
        text = node.value.replace(repr(harmless), repr(self.word)).replace(harmless, self.word)
        # Docstrings are wrapped, and sentences end.
        text = " ".join(text.split()).replace("no such choice!", "no such choice")
        return ast.Constant(re.sub(r"[.!?]+", ".", text))


def renamed(text: str, word: str) -> str:
    return ast.dump(Renamed(word).visit(ast.parse(text)), indent=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("family", "word"),
    [("rows", word) for word in WORDS] + [(family, word) for family in FAMILIES for word in WORDS[:2]],
)
def test_words_are_data(family: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files say what those of a harmless word say, but for the word; importing them runs nothing of it."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "words"
    plain = files(family, HARMLESS[is_plain(word)])
    made = files(family, word)
    for name, text in made.items():
        assert renamed(text, word) == renamed(plain[name], word), name
    package = module_at(with_runtime(folder, made))
    op = package.words
    signature = inspect.signature(op)
    assert signature.parameters["mode"].default == word
    sentence = " ".join(word.split())
    assert inspect.getdoc(op).splitlines()[0].rstrip(".!?") == sentence.rstrip(".!?")
    assert package.__doc__.strip().rstrip(".!?") == sentence.rstrip(".!?")
    tensors = [torch.ones(2, 2) for name in signature.parameters if name in ("x", "w")]
    shown = word if is_plain(word) else repr(word)
    with pytest.raises(ValueError, match=re.escape(f"words: mode must be one of one or {shown}, not 'else'")):
        op(*tensors, mode="else", other=word)
    assert [path.name for path in tmp_path.iterdir()] == ["words"]


def test_numbers_that_are_no_literals(tmp_path: Path) -> None:
    """`inf` and `nan` are of TOML, not of Python."""
    text = """
[op]
name = "words"
[inputs]
x = "float[N]"
z = "float[N] = inf"
[params]
most = { default = inf, max = inf }
least = { default = -inf, min = -inf }
[compute]
y = "minimum(clamp(x, least, most), z)"
[outputs]
y = "x"
[test]
x = { low = -3, high = 4e300 }
"""
    folder = written(read_spec("words.toml", text), tmp_path)
    defaults = {name: one.default for name, one in inspect.signature(module_at(folder).words).parameters.items()}
    assert (defaults["most"], defaults["least"]) == (torch.inf, -torch.inf)
    tested = module_at(folder / "bench_words.py")
    assert inspect.signature(tested.reference).parameters["most"].default == torch.inf
    assert 'float("inf")' in (folder / "test_words.py").read_text()


@pytest.mark.filterwarnings("error")
def test_python_warns_of_nothing() -> None:
    """Of expressions with escapes that are none, and numbers that run into keywords."""
    text = MAP.replace("SUMMARY", '"-"').replace("CHOICE", r"'\d'")
    text = text.replace("EXPRESSION", r"""'''1if mode == "\d" and other == "\d" else 1.5*x'''""")
    text = text.replace("REFERENCE", r"""'''x*1if mode == "\d" else x'''""")
    files = generate(read_spec("words.toml", text))
    assert r"if mode == '\\d'" in files["test_words.py"]


@pytest.mark.parametrize("word", WORDS)
def test_each_way_is_read_back(word: str) -> None:
    values = [word, {word: (word,)}, [None, True, 1, -2.5, float("-inf")]]
    assert eval(literal(values)) == values
    assert eval(Raise((word, expr(1))).text) == f"{word}1"
    assert ast.literal_eval(f'"""{prose(word)}."""') == f"{word}."


def test_code_and_strings_apart() -> None:
    line = """x = f"{n_rows} of {{n_cols}}" + 'it"s n_cols' + "n_cols" * n_cols  # torch's"""
    assert code_of(line).split() == 'x = n_rows of + "" + "" * n_cols # torch\'s'.replace("of ", "").split()
