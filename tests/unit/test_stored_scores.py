"""Why the scores of attention are stored: what plans know of it, and how `tritongen plan` prints that."""

import ast

import pytest

from tests.cases.streaming_cases import CAUSAL, MEAN, QKV, Case
from tests.cases.streaming_formulas import full
from tritongen.families.streaming.tile_sums import TileSums
from tritongen.operator.compile import backward_of, forward_of, generate
from tritongen.roofline.account import account_of
from tritongen.roofline.data import as_data
from tritongen.roofline.devices import DEVICES
from tritongen.roofline.text import as_text
from tritongen.spec.read import read_spec

SOFTMAX = "s = sum(q * k, D) * 0.25\np = softmax(s, N)\no = sum(p * v, N)"
FORWARD = {
    "p is a result, and has both axes": (QKV, SOFTMAX, "o:q; p:q[B, H, M, N]"),
    "u takes their argmax along N, too": (QKV, f"{SOFTMAX}\nu = argmax(s, N)", "o:q; u:auto"),
    "p takes their max along N. Write exp, not exp2, of scores below their maximum": (
        QKV,
        "s = sum(q * k, D) * 0.25\np = exp2((s - max(s, N)) * 1.4426950408889634)\no = sum(p * v, N) / sum(p, N)",
        "o:q",
    ),
    "s reduces what is no product of two inputs over one axis. "
    "Take from products, take(sum(q * w, D), r, R), and not sum(q * take(w, r, R), D)": (
        f"{QKV}; rows:T[P, D]",
        "r = clamp(index(N) - index(M), -4, 4) + 4\ns = sum(q * k, D) + sum(q * take(rows, r, P), D)\n"
        "o = sum(softmax(s, N) * v, N)",
        "o:q",
    ),
    "v may be None, or of a dtype that no tile multiplies": (QKV.replace("v:T", "v:int16"), SOFTMAX, "o:q"),
    "q, k, v are integers": (QKV.replace(":T", ":int8"), SOFTMAX, "o:float32"),
    "t sums over H what is made of scores": (
        f"{QKV}; w:T[H, K]".replace("v:T[B, H", "v:T[B, K"),
        "s = sum(q * k, D)\nt = sum(s * w, H)\no = sum(softmax(t, N) * v, N)",
        "o:q[B, K, M, E]",
    ),
    "s sums over X and D, which tensors do not all have next to one another in one order": (
        "q:T[B, M, X, D]; k:T[B, N, D, X]; v:T[B, N, E]",
        "s = sum(q * k, X, D)\no = sum(softmax(s, N) * v, N)",
        "o:q[B, M, E]",
    ),
}
BACKWARD = {
    "no pass takes the gradient by o_max, o_sum, which a separate step computes": (
        QKV,
        "o = sum(softmax(sum(q * k, D), M) * v, N)",
        "q k v",
    ),
    "o is made of its sums along N otherwise than by means and the logarithm of what divides them. "
    "Choose scores, where(kept, s, -inf), and not their exponentials": (
        QKV,
        "s = sum(q * k, D)\np = where(index(N) <= index(M), exp(s - max(s, N)), 0.0)\no = sum(p * v, N) / sum(p, N)",
        "q k v",
    ),
    "o is made of its sums along N otherwise than by means and the logarithm of what divides them. "
    "Add log(w) to scores, and do not multiply their exponentials by w": (
        f"{QKV}; keep:T[B, H, M, N]",
        "s = sum(q * k, D)\np = exp(s - max(s, N)) * keep\no = sum(p * v, N) / sum(p, N)",
        "q k v",
    ),
    "no pass takes the gradient by o_max, o_sum, which a separate step computes. "
    "Test logsumexp(s, N) == -inf, not whether probabilities are NaN": (
        QKV,
        "s = where(index(N) < index(M), sum(q * k, D), -inf)\no = sum(nan_to_num(softmax(s, N)) * v, N)",
        "q k v",
    ),
    "the gradient by table is scattered to what was taken": (
        f"{QKV.replace('B, ', '')}; table:float32[H, P]",
        f"s = sum(q * k, D) * 0.25 + take(table, index(M) - index(N) + size(N) - 1, P){MEAN}",
        "q k v table",
    ),
}
H100 = DEVICES["h100"]


@pytest.mark.parametrize("why", FORWARD)
def test_forward(why: str) -> None:
    inputs, compute, outputs = FORWARD[why]
    step = forward_of(Case(inputs, compute, full, outputs=outputs, by="").spec())
    assert step.stored is not None
    assert (step.stored.axes, step.stored.why) == (("M", "N"), why)


@pytest.mark.parametrize("why", BACKWARD)
def test_backward(why: str) -> None:
    """The forward streams by itself."""
    inputs, compute, by = BACKWARD[why]
    spec = Case(inputs, compute, full, outputs="o:q", by=by).spec()
    forward = forward_of(spec)
    backward = backward_of(spec, forward)
    assert forward.stored is None
    assert backward is not None
    assert backward.stored is not None
    assert (backward.stored.axes, backward.stored.why) == (("M", "N"), why)


def test_what_no_pass_sums_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if there was none for a bias."""
    monkeypatch.setattr(TileSums, "take", lambda *_: None)
    spec = Case(f"{QKV}; bias:T[M, N]", f"s = sum(q * k, D) * 0.25 + bias{MEAN}", full, by="q k v bias").spec()
    backward = backward_of(spec, forward_of(spec))
    assert backward is not None
    assert backward.stored is not None
    assert backward.stored.why == "the gradient by bias has no pass that sums it up"


def test_lines_that_are_not_fused() -> None:
    text = '[op]\nname = "attend"\n[types]\nT = "float"\n[inputs]\nq = "T[M, D]"\nk = "T[N, D]"\nv = "T[N, E]"\n'
    text += "[compute]\n"
    text += 's = "sum(q * k, D)"\no = "sum(softmax(s, N) * v, N)"\n[outputs]\no = "q[M, E]"\n'
    assert forward_of(read_spec("attend.toml", text)).stored is None
    step = forward_of(read_spec("attend.toml", f"{text}[schedule]\nfuse = false\n"))
    assert step.stored is not None
    assert step.stored.why == "fuse = false computes each line by itself"


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_plan_tells(name: str) -> None:
    """In one line of text, and as data."""
    is_forward = name == "forward"
    why, (inputs, compute, more) = [*(FORWARD if is_forward else BACKWARD).items()][0 if is_forward else -1]
    outputs, by = (more, "") if is_forward else ("o:q", more)
    account = account_of(Case(inputs, compute, full, outputs=outputs, by=by).spec(), {}, H100)
    line = f"scores [M, N] are stored in the {name}: {why}"
    assert [one for one in as_text(account).splitlines() if one.startswith("scores")] == [line]
    assert as_data(account)["stored_scores"] == [{"for": name, "axes": ["M", "N"], "why": why}]


def test_docstrings_tell() -> None:
    """Of the public function, whose reviewer may not ask for a plan."""
    inputs, compute, by = BACKWARD["the gradient by table is scattered to what was taken"]
    spec = Case(inputs, compute, full, outputs="o:auto", by=by).spec()
    (function,) = (node for node in ast.parse(generate(spec)["op.py"]).body if getattr(node, "name", "") == "attend")
    assert isinstance(function, ast.FunctionDef)
    told = " ".join((ast.get_docstring(function) or "").split())
    assert "Scores [M, N] are stored in the backward: the gradient by table is scattered to what was taken." in told
    plain = Case(QKV, f"s = sum(q * k, D){MEAN}", full, by="q").spec()
    assert "are stored" not in generate(plain)["op.py"]


@pytest.mark.parametrize(
    ("more", "compute"),
    [
        ("", CAUSAL + MEAN),
        ("", "h = gelu(sum(q * k, D))\no = sum(h * v, N)"),
        # A bias is stored, which is a matmul with both axes.
        ("; z:T[B, M, N, C]; w:T[C, H]", f"s = sum(q * k, D) + sum(z * w, C){MEAN}"),
    ],
)
def test_nothing_is_told_of_what_streams_and_of_what_is_no_attention(more: str, compute: str) -> None:
    account = account_of(Case(QKV + more, compute, full, outputs="o:q[B, H, M, E]").spec(), {}, H100)
    assert account.stored == ()
    assert "scores" not in as_text(account)
    assert as_data(account)["stored_scores"] == []


def test_nothing_is_told_of_what_is_summed_over_one_axis_of_an_image() -> None:
    """As the gradients of decomposed relative positions are, which have one axis of keys each."""
    inputs = "q:T[B, X, Y, D]; k:T[B, U, V, D]; v:T[B, U, V, E]; down:T[R, D]; across:T[S, D]"
    compute = """left = take(sum(q * down, D), index(X) - index(U) + size(U) - 1, R)
right = take(sum(q * across, D), index(Y) - index(V) + size(V) - 1, S)
o = sum(softmax(sum(q * k, D) + left + right, U, V) * v, U, V)"""
    case = Case(inputs, compute, full, outputs="o:q[B, X, Y, E]", by="q down across")
    assert account_of(case.spec(), {}, H100).stored == ()
