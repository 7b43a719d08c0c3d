"""The target of an import: a function or module of a file or package, and the example that it is called with."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import inspect
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..diagnostics.report import did_you_mean
from .refusals import NOWHERE, Place, Refusal

_DTYPES = dict(
    pair.split(":")
    for pair in """
    bf16:bfloat16 f16:float16 fp16:float16 half:float16 f32:float32 fp32:float32 float:float32 f64:float64 fp64:float64
    double:float64 i8:int8 u8:uint8 i16:int16 i32:int32 int:int32 i64:int64 long:int64 e4m3:float8_e4m3fn
    e5m2:float8_e5m2
    """.split()
)
_KNOWN = frozenset((*_DTYPES.values(), "bool"))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_CALL = re.compile(r"[A-Za-z_][\w.]*\(.*\)")
_FORM = 'write --example "x=bf16[4,1024,4096] weight=bf16[4096]"'


COMPLEX = ("complex numbers", "the language has none: write real and imaginary parts")


@dataclass(frozen=True, slots=True)
class Length:
    """A length of an example: `name` is its axis, if the example names it; `fixed` makes it the only length."""

    number: int
    name: str = ""
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """A tensor of an example, by its dtype and lengths."""

    dtype: str
    shape: tuple[Length, ...]


@dataclass(frozen=True, slots=True)
class Target:
    """A function of tensors and scalars, or a module with its parameters and buffers."""

    spelled: str  # as the command line has it, and its expression in full
    command: str
    name: str
    function: Callable[..., Any]
    summary: str = ""
    module: torch.nn.Module | None = None
    scalars: Mapping[str, float | int] = field(default_factory=dict)  # of a module: its constants by name
    is_region: bool = False  # whether only a region of it is imported
    init: tuple[str, ...] | None = None  # name=value for each argument of the module's constructor


def parse_example(text: str) -> dict[str, Example | object]:
    """Parses `x=bf16[4,1024,4096] dim=-1` to arguments by name, in order. Raises `Refusal`."""
    found: dict[str, Example | object] = {}
    for word in parse_words(text):
        name, sign, value = word.partition("=")
        if not sign or not name.isidentifier():
            raise Refusal(f"`{word}` is not an argument of an example", _FORM, "TG003")
        if name in found:
            raise Refusal(f"{name} is given twice", _FORM, "TG003")
        found[name] = _argument(name, value)
    _check_lengths(found)
    return found


def _check_lengths(given: Mapping[str, object]) -> None:
    """Checks that an axis's name has one length. Raises `Refusal`."""
    known: dict[str, int] = {}
    for length in (one for value in given.values() for tensor in tensors_of(value) for one in tensor.shape):
        if length.name and known.setdefault(length.name, length.number) != length.number:
            message = f"the axis {length.name} is {known[length.name]} and {length.number} long"
            raise Refusal(message, "give axes of other lengths other names", "TG003")


def tensors_of(value: object) -> list[Example]:
    """The tensors of an argument, which may be tuples and lists of them."""
    return [one for one in tree_leaves(value) if isinstance(one, Example)]


def parse_words(text: str) -> list[str]:
    """Splits a text at spaces, commas and newlines, except inside of brackets and quotes."""
    words, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "'\"":
            quote = sign
        depth += (sign in "([{") - (sign in ")]}") if not quote else 0
        if depth or quote or sign not in " ,\n":
            words[-1] += sign
        elif words[-1]:
            words.append("")
    return [one for one in words if one]


def _argument(name: str, value: str, scope: Mapping[str, Any] | None = None) -> Example | object:
    """A tensor, a literal, a tuple or list of these, a name of torch, a call of a name in `scope`, or a string."""
    value = value.strip()
    found = re.fullmatch(r"(\w+)\[([^\[\]()]*)\]", value)
    if found is None:
        try:
            literal: object = ast.literal_eval(value)
            return literal
        except (ValueError, SyntaxError):
            return _unquoted(name, value, scope)
    dtype = _DTYPES.get(found[1], found[1])
    if dtype not in _KNOWN:
        is_complex = re.fullmatch(r"c(omplex)?\d+", found[1])
        hint = COMPLEX[1] if is_complex else did_you_mean(found[1], [*_DTYPES, *_KNOWN], _FORM)
        raise Refusal(f"{name}: there is no dtype `{found[1]}`", hint, "TG003")
    return Example(dtype, tuple(_length(name, one.strip()) for one in found[2].split(",") if one.strip()))


def _unquoted(name: str, value: str, scope: Mapping[str, Any] | None) -> object:
    if (value[:1], value[-1:]) in (("(", ")"), ("[", "]")):
        several = (_argument(name, one, scope) for one in parse_words(value[1:-1]))
        return tuple(several) if value[0] == "(" else list(several)
    if re.fullmatch(r"torch(\.\w+)+", value):
        return _called_in({"torch": torch}, value)
    if scope is not None and _CALL.fullmatch(value):
        return _called_in(scope, value)
    if re.search(r"[\[\](){}]", value):
        raise Refusal(f"{name}: `{value}` is neither a tensor nor a number, a name or a tuple", _FORM, "TG003")
    return value


def _length(name: str, text: str) -> Length:
    found = re.fullmatch(r"(?:([A-Za-z]\w*)?\s*(=|:))?\s*(\d+)", text)
    if found is None or (found[2] == ":" and not found[1]):
        hint = "write a number; N:4096 names the axis, N=4096 or =4096 makes it the only length"
        raise Refusal(f"{name}: `{text}` is not a length", hint, "TG003")
    return Length(int(found[3]), found[1] or "", found[2] == "=")


def load(spelled: str, init: Sequence[str], example: str = "") -> Target:
    """The target `FILE.py:name`, `dotted.module:name` or `dotted.module:Class(...).eval()`. Raises `Refusal`."""
    inits = (f"--init {_quoted(one)}" for one in init)
    command = " ".join(["tritongen import", _quoted(spelled), *inits, f'--example "{example}"'])
    if spelled.endswith(")") and not init:
        return replace(load_model(spelled), command=command)
    home, _, path = spelled.rpartition(":")
    if not home or not path:
        hint = "name what is imported: model.py:function, or package.module:Class"
        raise Refusal(f"`{spelled}` names no function", hint, "TG002")
    found: Any = _imported(home)
    scope = _Scope(found)
    owner = home
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, [one for one in dir(found) if not one.startswith("_")], "")
            raise Refusal(f"{owner} has no `{name}`", hint, "TG002", Place(_file_of(home)))
        found, owner = getattr(found, name), name
    keywords = dict(_keyword(one, scope) for one in init)
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        return replace(of_module(spelled, command, path, _called(found, keywords)), init=tuple(init))
    if init:
        raise Refusal("--init is for classes of modules", "give arguments in --example", "TG003")
    if isinstance(found, torch.nn.Module):
        return of_module(spelled, command, path, found)
    if not callable(found):
        raise Refusal(f"{path} is neither a function nor a module", "", "TG002", Place(_file_of(home)))
    return Target(spelled, command, snake(path), found, _first_line(found))


def _quoted(word: str) -> str:
    """A word, quoted for a command line."""
    return f'"{word}"' if re.search(r"[^\w=.,:/+-]", word) and not re.search(r'["$`\\]', word) else shlex.quote(word)


def load_model(spelled: str) -> Target:
    """The model that an expression makes: `package.module:Model(Config(hidden_size=64))`. Raises `Refusal`."""
    home, sign, expression = spelled.partition(":")
    if not sign or not expression:
        hint = "name what is patched: model.py:model, or package.module:Model(config)"
        raise Refusal(f"`{spelled}` names no model", hint, "TG002")
    module = _imported(home)
    made = _called_in(_Scope(module), expression)
    if not isinstance(made, torch.nn.Module):
        raise Refusal(f"{expression} is no module, but of type {type(made).__name__}", "", "TG002")
    return of_module(spelled, "", type(made).__name__, made)


def of_module(spelled: str, command: str, path: str, module: Any) -> Target:
    """A module as a target. Raises `Refusal` for hooks."""
    for name, one in module.named_modules():
        if any(getattr(one, hooks) for hooks in _HOOKS):
            shown = f"{type(module).__name__}.{name}".rstrip(".")
            hint = "remove them before importing, or write their math in forward"
            place = place_of(type(one))
            place = place_of(type(module)) if is_library(place.path) else place
            raise Refusal(f"{shown} has hooks, which are no part of its math", hint, "TG004", place)
    return Target(spelled, command, snake(path), module, _first_line(type(module)), module, _constants(module))


def place_of(source: Any) -> Place:
    """Where a class or a function is defined."""
    try:
        return Place(inspect.getsourcefile(source) or "", inspect.getsourcelines(source)[1])
    except (OSError, TypeError):
        return NOWHERE


def _constants(module: Any) -> dict[str, float | int]:
    found: dict[str, float | int] = {}
    for one in module.modules():
        for name, value in vars(one).items():
            if isinstance(value, int | float) and not isinstance(value, bool) and not name.startswith("_"):
                found.setdefault(name, value)
    return found


def _called(maker: Callable[..., Any], keywords: Mapping[str, Any]) -> Any:
    try:
        return maker(**keywords)
    except Exception as error:
        inits = f"--init gives its arguments: {inspect.signature(maker)}"
        place = user_place(error)
        place = place if place != NOWHERE else place_of(maker)
        raise Refusal(f"{type(error).__name__}: {error}", inits, "TG002", place) from None


def module_at(name: str, path: str, folders: list[str] | None = None) -> ModuleType:
    """The module of a file, or the package of one with `folders`, imported under a name."""
    found = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folders)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    found.loader.exec_module(module)
    return module


def _imported(home: str) -> ModuleType:
    path = home if home.endswith(".py") else ""
    if path and not os.path.isfile(path):
        raise Refusal(f"there is no file {path}", "", "TG002")
    folder = os.path.dirname(os.path.abspath(path)) if path else os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        if not path:
            return importlib.import_module(home)
        name = os.path.splitext(os.path.basename(path))[0]
        return module_at(name, os.path.abspath(path))
    except SyntaxError as error:
        place = Place(error.filename or path, error.lineno or 0, error.offset or 1)
        raise Refusal(f"not Python: {error.msg}", "", "TG002", place) from None
    except (Exception, SystemExit) as error:
        message = f"importing it raises {type(error).__name__}: {error}"
        raise Refusal(message, "", "TG002", user_place(error)) from None


def user_place(error: BaseException, any_of_torch: bool = False) -> Place:
    """The innermost line of user code in a traceback; with `any_of_torch`, of torch.nn if there is none."""
    found = NOWHERE
    for frame in traceback.extract_tb(error.__traceback__):
        is_torch = any_of_torch and "/torch/nn/" in frame.filename and is_library(found.path)
        if is_torch or not is_library(frame.filename):
            found = placed(frame.filename, frame.lineno, frame.end_lineno, frame.colno, frame.end_colno)
    return found


def placed(path: str, line: int | None, end: int | None, column: int | None, last: int | None) -> Place:
    """The place for Python's positions, which count columns from 0 and may be None."""
    wide = last - column if line == end and last is not None and column is not None else 1
    return Place(path, line or 0, (column or 0) + 1, max(1, wide))


@functools.cache
def is_library(path: str) -> bool:
    """Whether a file is no user code: of torch, NumPy, Python's standard library or this program."""
    modules = [os, sys.modules[__package__], *filter(None, map(sys.modules.get, ("torch", "numpy")))]
    standard, own, *others = (os.path.dirname(one.__file__ or "") for one in modules)
    is_installed = "site-packages" in path.removeprefix(standard)
    packages = tuple(one + os.sep for one in (os.path.dirname(own), *others))
    return path.startswith((*packages, "<")) or not path or (path.startswith(standard + os.sep) and not is_installed)


def _file_of(home: str) -> str:
    return getattr(sys.modules.get(home), "__file__", None) or home


def _keyword(text: str, scope: Mapping[str, Any]) -> tuple[str, object]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise Refusal(f"`--init {text}` is not name=value", "", "TG003")
    return name, _argument(name, value, scope)


def init_text(text: str) -> str:
    """`name=value` of --init as Python; a value that is neither a literal nor a call is a string."""
    name, _, value = text.partition("=")
    try:
        ast.literal_eval(value)
    except (ValueError, SyntaxError):
        if not _CALL.fullmatch(value):
            return f"{name}={value!r}"
    return f"{name}={ast.unparse(ast.parse(value.strip(), mode='eval'))}"


class _Scope(dict[str, Any]):
    """The names of a module, including those that its `__getattr__` loads lazily."""

    def __init__(self, module: ModuleType) -> None:
        super().__init__(vars(module))
        self._module = module

    def __missing__(self, name: str) -> Any:
        try:
            return getattr(self._module, name)
        except AttributeError:
            raise KeyError(name) from None


def _called_in(scope: Mapping[str, Any], text: str) -> object:
    try:
        return eval(text, {}, scope)
    except Exception as error:
        said = " ".join(str(error).split())
        raise Refusal(f"`{text}` raises {type(error).__name__}: {said}", "", "TG003") from None


def snake(path: str) -> str:
    name = path.rpartition(".")[2]
    words = r"(?<=[a-z])(?=[A-Z](?![A-Z][a-z]))|(?<=[0-9])(?=[A-Z](?![A-Z][a-z]|$))|(?<=[A-Z])(?=[A-Z][a-z])"
    return re.sub(words, "_", name).lower()  # As in ViTLayer, NewGELU and Conv1D.


def _first_line(found: object) -> str:
    """The first sentence of a docstring; "" if it is long or has an arrow."""
    text = inspect.cleandoc(getattr(found, "__dict__", {}).get("__doc__") or getattr(found, "__doc__", "") or "")
    text = text if not isinstance(found, type) or ("__doc__" in vars(found) and vars(found)["__doc__"]) else ""
    line = re.sub(r":\w+:`~?([^`]*)`|``([^`]*)``", r"\1\2", text.split("\n\n")[0].replace("\n", " "))
    first = re.split(r"(?<=\.)\s", line.strip())[0]
    return first if first and len(first) <= 110 and "->" not in first and first.isprintable() else ""
