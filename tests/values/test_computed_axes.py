"""Axes whose lengths [axes] computes: values and gradients are torch's, and lengths that cannot be are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cases.computed_axes import COMPUTED
from tests.harness.importing import built
from tests.harness.oracles import compare
from tests.harness.written import HEAD, Written
from tritongen.operator.compile import generate
from tritongen.operator.printed import printed_gradient
from tritongen.spec.read import read_spec

BUILT: dict[str, Any] = {}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("computed_axes")


def operator(name: str, folder: Path) -> Any:
    if name not in BUILT:
        spec = read_spec(f"{name}.toml", HEAD.replace("written", name) + COMPUTED[name].text)
        BUILT[name] = getattr(built(spec, folder), name)
    return BUILT[name]


@pytest.mark.parametrize(
    ("name", "call"), [(name, n) for name, case in COMPUTED.items() for n in range(len(case.calls))]
)
def test_is_what_torch_computes(name: str, call: int, folder: Path) -> None:
    case = COMPUTED[name]
    shapes, params = case.calls[call]
    random = torch.Generator().manual_seed(call)
    tensors = [
        torch.randint(0, 5, shape, generator=random)
        if place in case.positions
        else torch.randn(shape, generator=random, dtype=torch.float64)
        for place, shape in enumerate(shapes)
    ]
    function = operator(name, folder)
    compare(lambda *own: function(*own, **params), lambda *own: case.torch(*own, **params), tensors, case.by, 1e-10)


CONV = COMPUTED["conv1d"].text


def test_lengths_that_are_negative_are_refused(folder: Path) -> None:
    function, x = operator("conv1d", folder), torch.randn(2, 3, 4)
    told = r"conv1d: the length of P, \(H \+ 2 \* pad - dilation \* \(R - 1\) - 1\) // stride \+ 1, cannot be -1"
    with pytest.raises(ValueError, match=told):
        function(x, torch.randn(4, 3, 6))
    assert function(x, torch.randn(4, 3, 5)).shape == (2, 4, 0)
    with pytest.raises(ValueError, match="stride must be at least 1, not 0"):
        function(x, torch.randn(4, 3, 2), stride=0)


def test_an_input_is_checked_against_the_formula(tmp_path: Path) -> None:
    text = """[inputs]
x = "float[N]"
w = "float[K]"
mask = "bool[L]"
[params]
more = 1
[axes]
L = "N + K + more"
[compute]
y = "where(mask, take(x, index(L), N, fill=1.0), take(w, index(L) - size(N), K, fill=2.0))"
[outputs]
y = "x"
"""
    function = built(read_spec("checked.toml", HEAD.replace("written", "checked") + text), tmp_path).checked
    x, w, mask = torch.arange(2.0), torch.arange(3.0), torch.tensor([True, True, True, False, False, False])
    assert function(x, w, mask).tolist() == [0.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    told = r"checked: the length of L must be N \+ K \+ more = 7, not 6"
    with pytest.raises(ValueError, match=told):
        function(x, w, mask, more=2)
    with pytest.raises(ValueError, match=told.replace("7", "5")):
        function(x, w, mask, more=0)


def test_lengths_by_params_are_not_those_of_earlier_calls(folder: Path) -> None:
    """A call like an earlier one but for a param that changes lengths alone launches for its own."""
    function, table = operator("positions", folder), torch.randn(6, 3, dtype=torch.float64)
    for count in (4, 6, 2, 4):
        assert torch.equal(function(table, count=count), table[:count])


@pytest.mark.parametrize("kind", ["custom_op", "triton_op"])
def test_registered_operators_compute_lengths_of_fake_tensors(kind: str, tmp_path: Path) -> None:
    name = f"conv_of_{kind}"
    text = HEAD.replace("written", name) + CONV + f'[torch]\nregister = "{kind}"\nnamespace = "computed_axes"\n'
    function = getattr(built(read_spec(f"{name}.toml", text), tmp_path), name)
    x, w, bias = torch.randn(2, 3, 11), torch.randn(4, 3, 3), torch.randn(4)
    with torch._subclasses.FakeTensorMode() as mode:
        fakes = [mode.from_tensor(one) for one in (x, w, bias)]
        assert function(*fakes, stride=2, pad=1).shape == (2, 4, 6)
    compiled = torch.compile(lambda *own: function(*own, stride=2, pad=1) * 2, fullgraph=True, backend="eager")
    for length in (11, 14, 20):
        given = torch.randn(2, 3, length)
        wanted = 2 * torch.nn.functional.conv1d(given, w, bias, 2, 1)
        torch.testing.assert_close(compiled(given, w, bias), wanted, rtol=1e-5, atol=1e-5)


def test_vmap_adds_a_dimension(folder: Path) -> None:
    function, x = operator("gram", folder), torch.randn(4, 5, 3, dtype=torch.float64)
    for place in (0, 1):
        wanted = torch.func.vmap(lambda one: one @ one.mT, place)(x)
        torch.testing.assert_close(torch.func.vmap(function, place)(x), wanted)


def test_a_fill_is_what_where_says_around_a_take(tmp_path: Path) -> None:
    """To the same kernels."""
    texts = [
        f"""[inputs]
x = "float[..., N]"
shift = "int64[N]"
[compute]
at = "index(N) - shift"
y = "{line}"
[outputs]
y = "x"
[grad]
wrt = ["x"]
"""
        for line in ("take(x, at, N, fill=2.5)", "where(at >= 0 and at < size(N), take(x, at, N), 2.5)")
    ]
    kernels = [generate(read_spec("f.toml", HEAD + text))["kernels.py"].split('"""', 2)[2] for text in texts]
    assert _code(kernels[0]) == _code(kernels[1])


def _code(text: str) -> list[str]:
    """The lines of kernels without those that quote the spec."""
    return [line for line in text.splitlines() if not line.strip().startswith("#")]


def test_a_printed_gradient_computes_lengths_that_no_input_of_its_own_has() -> None:
    spec = read_spec("max_pool.toml", HEAD.replace("written", "max_pool") + COMPUTED["max_pool"].text)
    assert "[axes]\nR = 3\nS = 2\n\n" in printed_gradient(spec)
    spec = read_spec("sums.toml", HEAD.replace("written", "sums") + COMPUTED["sums_over_places"].text)
    assert '[axes]\nR = 3\nP = "H - R + 1"\n\n' in printed_gradient(spec)


@pytest.mark.parametrize("name", ["gram", "self_attention"])
def test_a_second_name_is_no_copy(name: str) -> None:
    """Operands along another name of their axis are views, for which no kernel is launched."""
    files = generate(read_spec(f"{name}.toml", HEAD.replace("written", name) + COMPUTED[name].text))
    forward = files["op.py"].partition(f"def _{name}_backward")[0]
    assert ".permute(" in forward
    assert "elementwise." not in forward


@pytest.mark.parametrize("group", ["R G", "G R"])
def test_a_fixed_length_that_inputs_have_in_groups_alone(group: str, tmp_path: Path) -> None:
    """As `(R G=2)`: emitted tests unflatten these groups, too."""
    text = f"""[axes]
G = 2
[inputs]
q = "float[({group}), M, D]"
k = "float[({group}), N, D]"
[compute]
o = "sum(softmax(sum(q * k, D), N) * k, N) * (1 + index(G))"
[outputs]
o = "auto[({group}), M, D]"
[grad]
wrt = ["q", "k"]
"""
    written, lengths = Written(text, tmp_path), {"R": 3, "G": 2, "M": 2, "N": 5, "D": 4}
    written.compare(lengths, written.drawn(lengths))
