"""Operators are found in models by their math, whatever it is called and in which order, and nothing else is."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.harness.printing import printed
from tests.importing.corpus import require
from tests.patching import models
from tritongen.cli import run
from tritongen.diagnostics.report import Rejected
from tritongen.importing.targets import module_at
from tritongen.patching.functions import functions
from tritongen.patching.run import patch, search_model
from tritongen.spec.read import read_spec

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
SPECS = [ROOT / "specs" / f"{name}.toml" for name in ("rms_norm", "swiglu", "cross_entropy")] + [
    ROOT / "examples" / "specs" / f"{name}.toml" for name in ("rotary", "attention_bshd", "token_loss")
]
GEMMA = [ROOT / "examples" / "specs" / f"{name}.toml" for name in ("rms_norm_offset", "geglu_tanh", "attention_window")]
DECODER = "ids=i64[2,12] labels=i64[2,12]"
OPERATORS = {"rms_norm": 2, "swiglu": 1, "rotary": 2, "attention_bshd": 1}


def operator(path: Path) -> Callable[..., Any]:
    """What a spec computes, in torch, as a function of a module, which graphs of torch.fx need."""
    spec = read_spec(path.stem, path.read_text(encoding="utf-8"))
    made = printed(spec)
    absent = {one.name: torch.tensor(float(one.default)) for one in spec.inputs if one.default is not None}
    dtype = getattr(torch, spec.outputs[0].dtype, None)
    names = [one.name for one in spec.inputs]

    def call(*args: Any, **given: Any) -> Any:
        found = made(**(absent | dict(zip(names, args, strict=False)) | given))
        return found.to(dtype) if isinstance(dtype, torch.dtype) else found

    call.__name__ = call.__qualname__ = path.stem
    call.__module__ = "printed_operators"
    setattr(sys.modules.setdefault(call.__module__, ModuleType(call.__module__)), path.stem, call)
    return call


CALLS = {path.stem: operator(path) for path in SPECS}
WINDOW = operator(GEMMA[-1])


def called(patched: Any) -> Counter[str]:
    calls = {one: name for name, one in CALLS.items()}
    return Counter(calls[node.target] for node in patched.graph.graph.nodes if node.target in calls)


def patched(model: torch.nn.Module, example: str, *results: str) -> Any:
    return patch(model, example, [str(path) for path in SPECS], CALLS, results)


@pytest.fixture(scope="module")
def decoder() -> torch.nn.Module:
    torch.manual_seed(0)
    return models.Decoder().double()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("results", "loss"), [((), "cross_entropy"), (("loss",), "token_loss")])
def test_a_decoder_computes_the_same(decoder: torch.nn.Module, results: tuple[str, ...], loss: str) -> None:
    """At other lengths, forward and backward. A loss that overwrites logits is found where nobody reads them."""
    made = patched(decoder, DECODER, *results)
    found = called(made)
    assert found[loss] == 1 or loss == "token_loss"
    assert found["cross_entropy"] + found["token_loss"] == 1
    assert (found["token_loss"] == 0) or results
    assert {name: found[name] for name in OPERATORS} == OPERATORS
    ids, labels = torch.randint(0, 20, (2, 3, 7))
    outputs = []
    for one in (decoder, made):
        decoder.zero_grad()
        output = one(ids=ids, labels=labels)
        output["loss"].backward()
        outputs.append([output["loss"].detach(), *(x.grad.clone() for x in decoder.parameters())])
        assert one is decoder or not results or output["logits"] is None
    torch.testing.assert_close(outputs[1], outputs[0])


@pytest.mark.sampled(2)
def test_what_is_patched_is_compiled(decoder: torch.nn.Module) -> None:
    made = patched(decoder, DECODER)
    ids, labels = torch.randint(0, 20, (2, 3, 7))
    compiled = torch.compile(made, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids=ids, labels=labels)["loss"], decoder(ids=ids, labels=labels)["loss"])


@pytest.mark.sampled(2)
def test_casts_to_wider_floats_are_left_out() -> None:
    """An operator reads what a norm in bfloat16 reads, and not its copy in float32."""
    torch.manual_seed(0)
    model = models.Decoder().bfloat16()
    made = patched(model, DECODER)
    norm = next(node for node in made.graph.graph.nodes if node.target is CALLS["rms_norm"])
    assert norm.kwargs["x"].meta["val"].dtype == torch.bfloat16
    assert norm.kwargs["eps"] == 1e-5
    assert not any(node.target is torch.ops.aten.pow.Tensor_Scalar for node in made.graph.graph.nodes)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The module that the command writes for a model of models.py, whose operators are those of CALLS, counted."""

    def write(model: str, example: str, *options: str) -> Any:
        monkeypatch.chdir(HERE)
        path = tmp_path / "patches.py"
        specs = [word for one in SPECS for word in ("--specs", str(one))]
        assert run(["patch", f"models.py:{model}", "--example", example, *specs, *options, "-o", str(path)]) == 0
        for name in ("generated", "examples.ops"):
            package = ModuleType(name)
            package.__dict__.update(CALLS, attention_window=WINDOW)
            monkeypatch.setitem(sys.modules, name, package)
        return module_at("patches", str(path))

    return write


@pytest.mark.sampled(2)
def test_a_file_puts_operators_into_a_model(written: Callable[..., Any]) -> None:
    """At other lengths, forward and backward, until it is undone; a call of other dtypes is the model's own."""
    patches = written("Decoder().double()", DECODER, "--results", "loss")
    own = sys.modules["models"]
    torch.manual_seed(0)
    model = own.Decoder().double()
    ids, labels = torch.randint(0, 20, (2, 3, 7))

    def results() -> list[torch.Tensor]:
        model.zero_grad()
        loss = model(ids=ids, labels=labels)["loss"]
        loss.backward()
        return [loss.detach(), *(x.grad.clone() for x in model.parameters())]

    expected, forward = results(), own.Norm.forward
    calls: Counter[str] = Counter()
    for name in CALLS:
        if hasattr(patches, name):
            setattr(patches, name, counted(name, calls, CALLS[name]))
    undo = patches.patch()
    torch.testing.assert_close(results(), expected)
    assert calls == {"rms_norm": 2, "rotary": 2, "attention_bshd": 1, "swiglu": 1, "token_loss": 1}
    model.float()(ids=ids, labels=labels)
    assert calls["rms_norm"] == 2
    undo()
    assert own.Norm.forward is forward


@pytest.mark.sampled(2)
def test_masks_that_a_caller_makes_are_compared(written: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One is read once, however many layers get it; what leaves more out is the model's own, and so is a graph's."""
    patches = written("Masked().double()", "x=f64[2,3,12,=4]", "--specs", str(GEMMA[-1]))
    model = sys.modules["models"].Masked()
    calls: Counter[str] = Counter()
    for name, own in {**CALLS, "attention_window": WINDOW}.items():
        if hasattr(patches, name):
            monkeypatch.setattr(patches, name, counted(name, calls, own))
    x, padding = torch.randn(3, 2, 9, 4, dtype=torch.float64), torch.ones(3, 9, dtype=torch.bool)
    padding[1, :2] = False
    expected = [model(x), model(x, padding | True), model(x, padding)]
    undo = patches.patch()
    equal = torch.equal
    monkeypatch.setattr(torch, "equal", lambda *masks: calls.update(equal=1) or equal(*masks))
    for padded, wanted in zip(((), (padding | True,), (padding,)), expected, strict=True):
        calls.clear()
        torch.testing.assert_close(model(x, *padded), wanted)
        leaves_out = bool(padded) and not padded[0].all()
        assert calls == ({"equal": 4} if leaves_out else {"attention_window": 2, "attention_bshd": 1, "equal": 3})
    calls.clear()
    torch.testing.assert_close(torch.compile(model, backend="eager", fullgraph=True)(x), expected[0])
    assert not calls
    undo()


@pytest.mark.sampled(1)
def test_a_patched_model_is_compiled_as_one_graph(written: Callable[..., Any]) -> None:
    """Without a break: at lengths of the example, at others, and where a call is the model's own."""
    patches = written("Decoder().double()", DECODER, "--results", "loss")
    torch.manual_seed(0)
    model = sys.modules["models"].Decoder().double()
    given = [
        dict(zip(("ids", "labels"), torch.randint(0, 20, (2, *shape)), strict=True)) for shape in ((2, 12), (3, 7))
    ]
    expected = [model(**one)["loss"] for one in given]
    undo = patches.patch()
    graphs: list[Counter[str]] = []
    for one in CALLS.values():
        torch.compiler.allow_in_graph(one)

    def backend(graph: Any, _: Any) -> Any:
        names = {one: name for name, one in CALLS.items()}
        graphs.append(Counter(names[node.target] for node in graph.graph.nodes if node.target in names))
        return graph.forward

    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=True)
    torch.testing.assert_close([compiled(**one)["loss"] for one in given], expected)
    operators = {"rms_norm": 2, "rotary": 2, "attention_bshd": 1, "swiglu": 1, "token_loss": 1}
    assert graphs in ([operators], [operators, operators])  # Torch may compile once more for other lengths.
    model.float()
    torch.testing.assert_close(compiled(**given[0])["loss"], expected[0].float())
    assert graphs[-1]["rms_norm"] == 0  # Its table has a dtype; that of the decoder has ids alone.
    undo()


def counted(name: str, calls: Counter[str], own: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return own(*args, **kwargs)

    return call


@pytest.mark.sampled(2)
def test_a_function_reads_as_a_person_would_write_it(written: Callable[..., Any]) -> None:
    """Numbers by the names of attributes, modules as they are called, and what may have other lengths is open."""
    patches = written("Decoder().bfloat16()", DECODER, "--results", "loss")
    text = Path(patches.__file__).read_text(encoding="utf-8")
    assert "def norm(self, x):\n    return rms_norm(x, self.weight, eps=self.eps)\n" in text
    assert '(norm, [(models.Norm, "forward")], [{"x": Like(torch.bfloat16, "A", "B", ANY)}])' in text
    assert "swiglu(self.up(" in text
    assert torch.compile(patches.norm, backend="eager", fullgraph=True) is not None


@pytest.mark.sampled(2)
def test_only_the_example_s_tensors_are_taken(decoder: torch.nn.Module) -> None:
    made = patched(decoder, DECODER)
    with pytest.raises(TypeError, match="ids"):
        made(ids=torch.zeros(2, 3, dtype=torch.long))


NORMS = {
    "norm": True,
    "norm_spelled_otherwise": True,
    "norm_of_a_sum": True,
    "over_rows": True,
    "eps_outside": False,
    "of_a_sum": False,
    "of_another": False,
    "eps_of_a_length": False,
    "divided_by_a_number": False,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", NORMS)
def test_norms(name: str) -> None:
    model = models.Called(getattr(models, name))
    last = "6" if name == "divided_by_a_number" else "=8"
    made = patched(model, f"x=f64[3,{last}] y=f64[3,{last}]")
    assert called(made)["rms_norm"] == NORMS[name]
    x, y = torch.randn(2, 5, 8, dtype=torch.float64)
    torch.testing.assert_close(made(x=x, y=y), model(x, y))


@pytest.mark.sampled(2)
def test_a_term_that_is_added_behind_it_is_not_a_weight() -> None:
    made = patched(models.Called(models.plus_weight), "x=f64[3,8] y=f64[3,8]")
    (norm,) = (node for node in made.graph.graph.nodes if node.target is CALLS["rms_norm"])
    assert "weight" not in norm.kwargs


ATTENTION = {
    "causal": True,
    "causal_by_hand": True,
    "causal_by_tril": True,
    "not_causal": False,
    "a_window": False,
    "backwards": False,
    "softmax_over_queries": False,
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ATTENTION)
def test_attention(name: str) -> None:
    """A mask is compared by its values at several lengths; a window is one, however long."""
    model = models.Called(getattr(models, name))
    made = patched(model, "x=f64[2,3,6,=4] y=f64[2,3,6,=4]")
    assert called(made)["attention_bshd"] == ATTENTION[name]
    x, y = torch.randn(2, 2, 3, 20, 4, dtype=torch.float64)
    torch.testing.assert_close(made(x=x, y=y), model(x, y))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "window"), [("a_window", 9), ("a_short_window", 3), ("a_window_ahead", None)])
def test_windows(name: str, window: int | None) -> None:
    """How long one is follows from the mask, at lengths at which it leaves something out."""
    model = models.Called(getattr(models, name))
    made = patch(model, "x=f64[2,3,6,=4] y=f64[2,3,6,=4]", [str(GEMMA[-1])], {"attention_window": WINDOW})
    found = [node.kwargs["window"] for node in made.graph.graph.nodes if node.target is WINDOW]
    assert found == ([window] if window else [])
    x, y = torch.randn(2, 2, 3, 20, 4, dtype=torch.float64)
    torch.testing.assert_close(made(x=x, y=y), model(x, y))


@pytest.mark.sampled(2)
def test_the_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE)
    specs = [word for path in SPECS for word in ("--specs", str(path))]
    assert run(["patch", "models.py:Decoder()", "--example", DECODER, *specs]) == 0
    out = capsys.readouterr().out
    assert "2 x rms_norm(x, weight, eps=1e-05)  " in out
    assert "  models.py:19\n" in out
    assert "attention_bshd(q, k, v, scale=0.353553)" in out
    assert out.endswith("7 regions of 5 operators\n")


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("model", "example", "said"),
    [
        ("models.py", DECODER, "names no model"),
        ("nothing.py:Decoder()", DECODER, "there is no file nothing.py"),
        ("models.py:Decoder(dims=3)", DECODER, "raises TypeError"),
        ("models.py:Decoder", DECODER, "is no module"),
        ("models.py:Decoder()", "ids=i64[2,12]", "missing a required argument: 'labels'"),
        ("models.py:Decoder()", "ids=i64[2,12] labels=i64[2,11]", "models.py:"),
    ],
)
def test_what_cannot_be_patched_is_said(
    model: str, example: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HERE)
    assert run(["patch", model, "--example", example, "--specs", str(SPECS[0])]) == 1
    assert said in capsys.readouterr().err


@pytest.mark.sampled(2)
def test_a_result_that_is_not_there() -> None:
    with pytest.raises(Rejected, match=r"no result lost"):
        patched(models.Decoder(), DECODER, "lost")


FOUND = {
    "llama:LlamaForCausalLM(LlamaConfig(": {"rms_norm": 5, "rotary": 4, "attention_bshd": 2, "swiglu": 2},
    "qwen3:Qwen3ForCausalLM(Qwen3Config(head_dim=8, ": {"rms_norm": 9, "rotary": 4, "attention_bshd": 2, "swiglu": 2},
    "gemma3:Gemma3ForCausalLM(Gemma3TextConfig(head_dim=8, sliding_window=4, "
    "layer_types=['sliding_attention', 'full_attention'], ": {
        "rms_norm_offset": 13,
        "rotary": 4,
        "attention_bshd": 1,
        "attention_window": 1,
        "geglu_tanh": 2,
    },
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("model", FOUND)
def test_models_of_transformers(model: str) -> None:
    """Without a line that was written for them, in the graph and in the file. Gemma's norm has one plus its weight."""
    require("transformers")
    name = model.partition(":")[0]
    config = "hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, "
    spelled = f"transformers.models.{name}.modeling_{model}{config}vocab_size=50))"
    example = "input_ids=i64[2,12] labels=i64[2,12] use_cache=False"
    found = search_model(spelled, example, [str(path) for path in (*SPECS, *GEMMA)])
    assert Counter(one.operator.spec.name for one in found.report.found) == {**FOUND[model], "cross_entropy": 1}
    _, left = functions(found)
    assert not left
