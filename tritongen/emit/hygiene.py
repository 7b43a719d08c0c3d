"""Marked text of a module -> its text, where every name means one thing.

Three ranks share the names of a module. First come names that are known outside: builtins, imports, definitions of the
module, keywords, names in strings, the options of a launch. Then come the names of the spec, and last those that
generated code made up: its variables, and names derived from names of the spec. A name of a later rank that is already
used gets an underscore, or a number. Without such a collision nothing changes. The function of an operator is of the
first rank and keeps its name even there: an import of that name gets another, and a builtin is read from its module.

Names that callers know, such as the parameters of public functions, are always spelled as in the spec. If such a name
means something else in the module, the function passes its parameters on to one that names them otherwise.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from ..lang.names import CODE, MARK, MARKS, NAMED, PUBLIC, numbered, shown, unused
from ..lang.trees import Visitor, parsed_module, walk
from .imports import STANDARD

# Names that Triton, and the function that it makes from a kernel's signature, reserve.
LAUNCH = frozenset(
    "allow_flush_denorm allowed_dot_input_precisions arch backend backend_name clc cluster_dims debug"
    " default_dot_input_precision deprecated_fp8_dot_operand_dtypes device device_type enable_fp_fusion"
    " enable_reflect_ftz extern_libs fpsan_homomorphic_casts grid instrumentation_mode ir_override kpack"
    " launch_cooperative_grid launch_pdl llvm_fn_attrs matrix_instr_nonkdim max_num_imprecise_acc_default"
    " maxnreg min_shared_mem num_ctas num_stages num_warps options params ptx_options ptx_version sanitize_overflow"
    " sched4reg schedule_hint self specialization specialize_impl stream supported_fp8_dtypes warmup warp_size"
    " waves_per_eu wgp_cu_mode".split()
)
_TOKEN = re.compile(
    r"(?P<string>(?:\b[rf])?(?:\"\"\"[\s\S]*?\"\"\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'))"
    r"|(?P<comment>#[^\n]*)|\d[\w.]*|(?P<dot>(?<!\.)\.\s*)?(?P<name>[^\W\d]\w*)"
)
_KEYWORDS = frozenset(keyword.kwlist)
_WORD = re.compile(r"\w+")


# The attributes that a context of torch's autograd has already.
CONTEXT = frozenset(
    "apply backward boxed_grads_call clear_saved_tensors_on_access dirty_tensors forward generate_vmap_rule jvp"
    " materialize_grads maybe_clear_saved_tensors metadata name"
    " needs_input_grad next_functions non_differentiable register_hook register_prehook"
    " requires_grad save_for_backward save_for_forward saved_for_forward saved_tensors saved_variables"
    " set_materialize_grads setup_context to_save vjp vmap".split()
)


def resolved(*texts: str) -> tuple[str, ...]:
    """The texts of modules, without marks. The modules pass each other arguments by name, so that all spell the names
    of the spec, and names derived from these, alike.
    """
    if not set().union(*texts) & set(MARKS):
        return texts
    modules = [_blocks(text) for text in texts]
    every = [block for blocks in modules for block in blocks]
    spec = _spelled(every)
    made = _made(every, spec)
    functions = {block.tree.name for block in every if isinstance(block.tree, ast.FunctionDef)}
    defined = {name: made[name] for name in functions if name in made}
    return tuple(_resolved(blocks, spec, made, defined) for blocks in modules)


def _resolved(
    blocks: list[_Block], spec: Mapping[str, str], made: Mapping[str, str], defined: Mapping[str, str]
) -> str:
    """The text of a module with names of the spec, and names derived from these, as they are to be spelled.

    `defined` are the functions of all modules, which are attributes of these.
    """
    mentioned = set().union(*(block.mentioned for block in blocks))
    attributes = {**_attributes(blocks), **defined}
    hidden = _hidden(blocks)
    texts = []
    for block in blocks:
        spelling = _Spelling.of(block, spec, {**made, **hidden}, mentioned, attributes)
        texts.append(_imported(block, hidden) if block.imported else _handed_on(block, spelling))
    if any(name.startswith("_builtins.") for name in hidden.values()):
        after_docstring = 1
        first = next((n for n, block in enumerate(blocks) if block.imported), after_docstring)
        is_alone = blocks[first].text.strip() not in STANDARD.values()
        texts.insert(first, "import builtins as _builtins" + "\n" * is_alone)
    return "\n".join(texts)


@dataclass(slots=True)
class _Block(Visitor):
    """A statement of a module, with its names by their use."""

    text: str
    tree: ast.stmt
    end: int  # its last line
    words: dict[str, None] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)  # variables of this block alone
    mentioned: set[str] = field(default_factory=set)  # by keywords and strings
    attributes: set[str] = field(default_factory=set)
    passed: set[str] = field(default_factory=set)  # to kernels
    imported: set[str] = field(default_factory=set)  # names that an import binds
    operators: set[str] = field(default_factory=set)  # that are defined or imported
    called: set[str] = field(default_factory=set)  # the operators that a function reads

    known: set[str] = field(default_factory=set)  # names of ours that mean something outside of the block
    own: set[str] = field(default_factory=set)  # variables of ours that are in no way named after the spec

    def __post_init__(self) -> None:
        self.words = dict.fromkeys(_WORD.findall(self.text))
        self.visit(self.tree)
        self.known = {shown(name) for name in self.variables - self.bound if MARK not in name}
        self.own = {name for name in self.variables & self.bound if name.isascii()}

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        names = {alias.asname or alias.name for alias in node.names}
        self.operators |= {shown(name) for name in names if PUBLIC.fullmatch(name)}
        self.imported |= names if node is self.tree else set()

    visit_ImportFrom = visit_Import

    def visit_Name(self, node: ast.Name) -> None:
        self.variables.add(node.id)
        if PUBLIC.fullmatch(node.id) and isinstance(self.tree, ast.FunctionDef):
            self.called.add(shown(node.id))
        if not isinstance(node.ctx, ast.Load) and not isinstance(self.tree, ast.Assign | ast.AnnAssign):
            self.bound.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        self.variables.add(node.arg)
        self.bound.add(node.arg)
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.mentioned.add(node.name)
        self.variables.add(node.name)
        names = {argument.arg for argument in walk(node.args) if isinstance(argument, ast.arg)}
        if any(ast.unparse(decorator).startswith(("triton.", "gluon.")) for decorator in node.decorator_list):
            self.passed |= names
        if node is self.tree and node.name[0] != "_":  # Pytest and others pass them by name.
            self.mentioned |= names
        if PUBLIC.fullmatch(node.name):
            self.operators.add(shown(node.name))
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # Docstrings are prose.
            self.visit(node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.mentioned |= {node.arg} if node.arg else set()
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.attributes.add(node.attr)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.mentioned |= set(_WORD.findall(node.value))


def _blocks(text: str) -> list[_Block]:
    lines, tree = text.split("\n"), parsed_module(text)
    starts = [min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", ()))]) - 1 for s in tree.body]
    ends = [*starts[1:], len(lines)]
    blocks = []
    for statement, start, end in zip(tree.body, [0, *starts[1:]], ends, strict=True):
        blocks.append(_Block("\n".join(lines[start:end]), statement, end))
    return blocks


def _spelled(blocks: list[_Block]) -> dict[str, str]:
    """How variables with names of the spec are spelled in a module: the same in all of it."""
    mentioned = set().union(*(block.mentioned for block in blocks))
    words = dict.fromkeys(word for block in blocks for word in block.words if NAMED.fullmatch(word))
    wanted = {shown(word) for word in words}
    spelled: dict[str, str] = {}
    for word in words:
        used = set(spelled.values()) | wanted - {shown(word)}
        for block in blocks:
            if word in block.variables:
                used |= block.known | block.own & mentioned
            if word in block.passed:
                used |= LAUNCH
        spelled[word] = unused(shown(word), used)
    return spelled


def _made(blocks: list[_Block], spec: Mapping[str, str]) -> dict[str, str]:
    """The same for names that are derived from names of the spec."""
    found: dict[str, list[_Block]] = {}
    for block in blocks:
        for word in block.words:
            if MARK in word and CODE not in word and word not in spec:
                found.setdefault(word, []).append(block)
    used = {
        id(block): block.known | block.own | {spec[word] for word in block.words if word in spec} for block in blocks
    }
    made: dict[str, str] = {}
    functions = (block.tree.name for block in blocks if isinstance(block.tree, ast.FunctionDef))
    done = {*_KEYWORDS, *(shown(name) for name in functions if MARK not in name)}  # Others call them, too.
    for word, places in found.items():
        launched = LAUNCH if any(word in block.passed for block in places) else frozenset()
        made[word] = numbered(shown(word), done.union(launched, *(used[id(block)] for block in places)))
        done.add(made[word])
    return made


def _hidden(blocks: list[_Block]) -> dict[str, str]:
    """The module's spelling of imports and builtins that it reads and the function of an operator hides."""
    operators = set().union(*(block.operators for block in blocks))
    hidden = operators & set().union(*(block.variables - block.bound for block in blocks))
    imported = set().union(*(block.imported for block in blocks))
    words = set().union(*(block.words for block in blocks))
    others = {name: unused(f"{name}_", words) for name in sorted(hidden & imported)}
    return others | {name: f"_builtins.{name}" for name in sorted(hidden - imported) if hasattr(builtins, name)}


def _attributes(blocks: list[_Block]) -> dict[str, str]:
    """The same for attributes."""
    words = {word for block in blocks for word in block.attributes}
    found: dict[str, str] = {}
    for word in sorted(word for word in words if MARK in word):
        found[word] = unused(shown(word), words | CONTEXT | set(found.values()))
    return found


@dataclass(frozen=True, slots=True)
class _Spelling:
    """The spelling of the marked names of a block."""

    names: Mapping[str, str]
    attributes: Mapping[str, str]

    @classmethod
    def of(
        cls,
        block: _Block,
        spec: Mapping[str, str],
        made: Mapping[str, str],
        mentioned: Container[str],
        attributes: Mapping[str, str],
    ) -> _Spelling:
        names = {**spec, **made}
        used = {spec[word] for word in block.variables if word in spec} | block.called
        for word in sorted(block.own & used):
            assert word not in mentioned, word
            others = block.own | block.known | {names[other] for other in block.words if other in names}
            names[word] = unused(word, others | set(names.values()))
        return cls(names, attributes)

    def code(self, text: str) -> str:
        return _TOKEN.sub(self.token, text)

    def token(self, match: re.Match[str]) -> str:
        token = match[0]
        if match["string"]:
            return self.formatted(token) if token[0] == "f" else self.prose(token)
        if match["comment"]:
            return self.prose(token)
        if match["dot"]:
            return match["dot"] + self.attributes.get(match["name"], shown(match["name"]))
        return self.names.get(token, shown(token))

    def prose(self, text: str) -> str:
        """Strings and comments, in which names are the user's."""
        return _WORD.sub(self.word, text)

    def word(self, match: re.Match[str]) -> str:
        word = match[0]
        if CODE in word:
            word = word.removeprefix(CODE)
            return self.names.get(word, word)
        return shown(word) if NAMED.fullmatch(word) or MARK not in word else self.names[word]

    def formatted(self, text: str) -> str:
        """An f-string: prose with code in braces."""
        pieces = _BRACES.split(text)
        return "".join(self.inside(piece) if place % 2 else self.prose(piece) for place, piece in enumerate(pieces))

    def inside(self, piece: str) -> str:
        code, rest = re.fullmatch(r"([\s\S]*?)((?:![rsa])?(?::[^\])]*)?\})", piece).groups()  # type: ignore[union-attr]
        return self.code(code) + rest


_BRACES = re.compile(r"((?<!\{)(?:\{\{)*\{(?!\{)[^{}]*\})")


def _imported(block: _Block, hidden: Mapping[str, str]) -> str:
    """The text of an import, with hidden names imported under the names that the module has for them."""
    line, *rest = block.text.split("\n")
    source, _, names = line.rpartition("import ")
    plain = [name for name in names.split(", ") if name not in hidden]
    lines = [f"{source}import {', '.join(plain)}"] if plain else []
    lines += [f"{source}import {name} as {hidden[name]}" for name in names.split(", ") if name in hidden]
    return shown("\n".join([*sorted(lines), *rest]))


def _handed_on(block: _Block, spelling: _Spelling) -> str:
    """The text of a block. A public function that cannot use its parameters by their names only hands them on."""
    function = block.tree
    if not isinstance(function, ast.FunctionDef):
        return spelling.code(block.text)
    arguments = [*function.args.args, *function.args.kwonlyargs]
    spec = {shown(word): word for word in spelling.names if NAMED.fullmatch(word)}
    inner = {a.arg: spec[shown(a.arg)] for a in arguments if PUBLIC.fullmatch(a.arg) and shown(a.arg) in spec}
    if all(spelling.names[word] == shown(word) for word in inner.values()):
        return spelling.code(block.text)
    own = f"_{shown(function.name).lstrip('_')}_"
    kinds = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
    renamed = [inner.get(argument.arg, argument.arg) for argument in arguments]
    signature = ", ".join(f"{name}: {kind}" for name, kind in zip(renamed, kinds, strict=True))
    returns = ast.unparse(function.returns) if function.returns else "None"
    passed = ", ".join(argument.arg for argument in arguments)
    lines = block.text.split("\n")
    has_doc = ast.get_docstring(function, clean=False) is not None
    first = len(lines) - (block.end - function.body[has_doc].lineno) - 1
    lines[first:first] = [f"    return {own}({passed})", "", "", f"def {own}({signature}) -> {returns}:"]
    return spelling.code("\n".join(lines))
