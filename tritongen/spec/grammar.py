"""The strings that declare tensors: `float[..., N]`, `float16|bfloat16[M, (H=2 D)] = 0`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from ..diagnostics.report import Mistake, Mistakes, closest, did_you_mean, listed
from .types import BATCH, BOOLS, DTYPE_CLASSES, FLOAT8S, FLOATS, RANGES, AxisTerm, TensorType

ALL_DTYPES = DTYPE_CLASSES["any"]
READ_DTYPES = (*ALL_DTYPES, *FLOAT8S)
# Names of dtypes elsewhere, for the hint.
ALIASES = {
    "half": "float16",
    "fp16": "float16",
    "f16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "double": "float64",
    "fp64": "float64",
    "f64": "float64",
    "fp8": "float8",
    "float8_e4m3": "float8_e4m3fn",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
    "char": "int8",
    "byte": "uint8",
    "short": "int16",
    "long": "int64",
    "i32": "int32",
    "i64": "int64",
    "integer": "int",
    "boolean": "bool",
    "real": "float",
    "floating": "float",
}
_TOKEN = re.compile(
    r"\s*(?P<token>\.\.\.|[A-Za-z_][A-Za-z0-9_]*"
    r"|[+-]?(?:inf|nan)\b|[+-]?[0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|\S)"
)
_AXIS = re.compile(r"[A-Z][A-Z0-9_]*")
Default = float | int | bool | None
Shape = tuple[AxisTerm, ...]


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    start: int


def parse_dtypes(text: str, key: tuple[str, ...]) -> tuple[str, ...]:
    """`float16|bfloat16` or a class."""
    parser = _Parser(text, key)
    dtypes = parser.dtypes(parser.words_with_bars(), {})
    parser.end()
    return dtypes


def parse_input(
    text: str, key: tuple[str, ...], variables: Mapping[str, tuple[str, ...]]
) -> tuple[TensorType, Default]:
    """`DTYPE[AXES]` or `DTYPE[AXES] = NUMBER`. A shared type with a mistake admits no dtypes."""
    parser = _Parser(text, key)
    words = parser.words_with_bars()
    variable = words[0].text if len(words) == 1 and words[0].text in variables else ""
    dtypes = variables[variable] if variable else parser.dtypes(words, variables)
    shape = parser.shape()
    default = parser.default(dtypes or ALL_DTYPES)
    parser.end()
    return TensorType(dtypes, shape, variable), default


def parse_output(
    text: str, key: tuple[str, ...], inputs: tuple[str, ...], shared: Mapping[str, str]
) -> tuple[str, Shape | None]:
    """`auto`, the name of an input or a dtype; axes in brackets may follow.

    The name of a `shared` type is replaced by the name of an input of this type.
    """
    parser = _Parser(text, key)
    word = parser.next(f"'auto', an input or a dtype, such as {text or 'auto'!r}")
    known = ("auto", *inputs, *READ_DTYPES)
    dtype = word.text if word.text in known else shared.get(word.text, "")
    if not dtype:
        hint = did_you_mean(word.text, (*known, *shared, *ALIASES), "write 'auto', the name of an input or a dtype")
        if word.text in DTYPE_CLASSES:
            hint = "an output has one dtype: write 'auto', the name of an input, or a dtype"
        if word.text in ALIASES:
            hint = f"did you mean '{ALIASES[word.text]}'?"
        hint = parser.without_module(word) or hint
        parser.fail("TG122", f"'{word.text}' is neither an input nor a dtype", word, hint)
    shape = parser.shape() if parser.token else None
    parser.end()
    return dtype, shape


class _Parser:
    """Parser of one string; the first mistake ends it, but all repeated axes are reported together."""

    def __init__(self, text: str, key: tuple[str, ...]) -> None:
        self._key = key
        matches = _TOKEN.finditer(text)
        self._tokens = [_Token(match["token"], match.start("token")) for match in matches]
        self._tokens.append(_Token("", len(text)))
        self._at = 0

    @property
    def _here(self) -> _Token:
        return self._tokens[self._at]

    @property
    def token(self) -> str:
        """The next token, "" at the end."""
        return self._here.text

    def next(self, expected: str) -> _Token:
        if not self.token:
            self.fail("TG121", f"the type ends where {expected} should follow", self._here)
        self._at += 1
        return self._tokens[self._at - 1]

    def expect(self, text: str, hint: str = "") -> None:
        if self.token == text:
            self._at += 1
            return
        found = f"'{self.token}'" if self.token else "the end"
        self.fail("TG121", f"expected '{text}', found {found}", self._here, hint)

    def end(self) -> None:
        if self.token:
            self.fail("TG121", f"'{self.token}' does not belong here", self._here)

    def fail(self, code: str, message: str, at: _Token, hint: str = "") -> NoReturn:
        raise Mistakes(self._mistake(code, message, at, hint))

    def _mistake(self, code: str, message: str, at: _Token, hint: str = "") -> Mistake:
        return Mistake(code, message, self._key, at.start, max(1, len(at.text)), hint)

    def words_with_bars(self) -> list[_Token]:
        words = [self.next("a dtype")]
        while self.token == "|":
            self._at += 1
            words.append(self.next("a dtype"))
        return words

    def dtypes(self, words: list[_Token], variables: Mapping[str, object]) -> tuple[str, ...]:
        admitted: set[str] = set()
        for word in words:
            if word.text in DTYPE_CLASSES:
                admitted.update(DTYPE_CLASSES[word.text])
            elif word.text in READ_DTYPES:
                admitted.add(word.text)
            else:
                self._unknown_dtype(word, variables)
        if admitted & set(FLOAT8S) and not admitted <= set(FLOAT8S):
            other = next(word for word in words if word.text not in (*FLOAT8S, "float8"))
            hint = "write a spec for each: float8 values give way to other floats, whatever those are"
            self.fail("TG406", f"an input cannot be float8 or {other.text}", other, hint)
        return tuple(dtype for dtype in READ_DTYPES if dtype in admitted)

    def _unknown_dtype(self, word: _Token, variables: Mapping[str, object]) -> NoReturn:
        if word.text in variables:
            self.fail("TG121", f"'{word.text}' cannot be joined with other dtypes", word)
        if not word.text[0].isalpha():
            self.fail("TG121", f"expected a dtype, found '{word.text}'", word)
        if word.text.islower():
            found = ALIASES.get(word.text) or closest(word.text, (*DTYPE_CLASSES, *READ_DTYPES))
            otherwise = f"the classes are {listed(DTYPE_CLASSES)}"
            hint = f"did you mean '{found}'?" if found else otherwise
        else:
            hint = did_you_mean(
                word.text,
                variables,
                f'a shared type is declared first: [types] {word.text} = "float"',
            )
        self.fail("TG122", f"unknown dtype '{word.text}'", word, self.without_module(word) or hint)

    def without_module(self, word: _Token) -> str:
        """The hint for `torch.float32`."""
        dtype = next((one.text for one in self._tokens if one.text in READ_DTYPES), "")
        return f"write {dtype} without {word.text}" if word.text in ("torch", "tl", "np") and dtype else ""

    def shape(self) -> Shape:
        if not self.token or self.token == "=":
            self.fail(
                "TG120",
                "the axes are missing",
                self._here,
                'write them in brackets: "float[..., N]", or "float[]" for a single number',
            )
        self.expect("[", 'write the axes in brackets: "float[..., N]"')
        terms: list[tuple[AxisTerm, list[_Token]]] = []
        while self.token != "]":
            if terms:
                self.expect(",", "axes are separated by commas")
            terms.append(self._term(first=not terms))
        self.expect("]")
        shape = tuple(term for term, _ in terms)
        twice = list(self._repeated([token for _, tokens in terms for token in tokens]))
        if twice:
            raise Mistakes(*twice)
        return shape

    def _repeated(self, tokens: list[_Token]) -> Iterator[Mistake]:
        seen: set[str] = set()
        for token in tokens:
            if token.text in seen:
                hint = "two axes of one length need two names; take(x, index(M), N) reads a diagonal"
                message = f"axis {token.text} occurs twice in one tensor"
                yield self._mistake("TG124", message, token, hint)
            seen.add(token.text)

    def _term(self, first: bool) -> tuple[AxisTerm, list[_Token]]:
        if self.token == "(":
            return self._group()
        token = self.next("an axis")
        if token.text == BATCH:
            if not first:
                self.fail("TG125", "'...' may only be first", token, "leading axes broadcast")
            return AxisTerm((BATCH,), (None,)), []
        self._check_axis(token)
        return AxisTerm((token.text,), (self._size(),)), [token]

    def _group(self) -> tuple[AxisTerm, list[_Token]]:
        opening = self.next("'('")
        tokens: list[_Token] = []
        sizes: list[int | None] = []
        while self.token != ")":
            if self.token == ",":
                hint = "(H=2 D) is one dimension of length H * D"
                self.fail("TG121", "axes of a group are separated by spaces", self._here, hint)
            token = self.next("an axis or ')'")
            if token.text == BATCH:
                self.fail("TG125", "'...' cannot be part of a group", token)
            self._check_axis(token)
            tokens.append(token)
            sizes.append(self._size())
        self._at += 1
        if len(tokens) < 2:
            self.fail("TG121", "a group joins two axes or more", opening, "write (H=2 D), or N")
        return AxisTerm(tuple(token.text for token in tokens), tuple(sizes)), tokens

    def _check_axis(self, token: _Token) -> None:
        if is_axis(token.text):
            return
        if not token.text[0].isalnum():
            self.fail("TG121", f"expected an axis, found '{token.text}'", token)
        hint = in_capitals(token.text)
        if token.text.isdigit():
            hint = f"name the axis and fix its length: C={token.text}"
        self.fail("TG123", f"'{token.text}' is not the name of an axis", token, hint)

    def _size(self) -> int | None:
        if self.token != "=":
            return None
        self._at += 1
        token = self.next("a length")
        if not re.fullmatch("[0-9]+", token.text):
            self.fail("TG126", f"the length of an axis cannot be '{token.text}'", token)
        if len(token.text) > 20:
            self.fail("TG126", "the length of an axis must fit in 32 bits", token)
        size = int(token.text)
        if not 1 <= size < 2**31:
            must = "be at least 1" if size < 1 else "fit in 32 bits"
            self.fail("TG126", f"the length of an axis must {must}, not {size}", token)
        return size

    def default(self, dtypes: tuple[str, ...]) -> Default:
        """`= NUMBER` of an optional input."""
        if self.token != "=":
            return None
        self._at += 1
        token = self.next("a number")
        number = _number(token.text)
        if number is None:
            hint = "write the number that stands for what a caller leaves out, as in float[N] = 1"
            self.fail("TG128", f"'{token.text}' is not a number", token, hint)
        if not any(_holds(dtype, number) for dtype in dtypes):
            hint = f"write {'true' if number else 'false'}" if set(dtypes) == set(BOOLS) and number in (0, 1) else ""
            self.fail("TG128", f"no dtype of this input can hold {token.text}", token, hint)
        return number


def is_axis(name: str) -> bool:
    return bool(_AXIS.fullmatch(name))


def in_capitals(name: str) -> str:
    """The hint that axes are named in capitals."""
    upper = name.upper()
    return f"axes are named in capitals: {upper if is_axis(upper) else 'N, HEADS'}"


def _number(text: str) -> Default:
    if text in ("true", "false"):
        return text == "true"
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return None


def _holds(dtype: str, number: float | int | bool) -> bool:
    if dtype in (*FLOATS, *FLOAT8S):
        return not isinstance(number, bool)
    if dtype in BOOLS or isinstance(number, bool):
        return dtype in BOOLS and isinstance(number, bool)
    low, high = RANGES[dtype]
    return isinstance(number, int) and low <= number <= high
