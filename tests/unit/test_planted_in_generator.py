from tests.harness.planted_in_generator import KINDS, bugs_of, planted

CODE = '''"""where n < 1: said, and not computed."""


def f(a, b):
    assert a < b
    return g(a, b) if a < b and not a else [a + 1][0]


def why(a):
    return a < 1
'''
KERNEL = """\
x = tl.load(ptr, mask=row_mask & col_mask, other=0.0).to(COMPUTE) * rescale
# mask=row_mask
m = rows < n_rows
"""


def edits(path: str, text: str) -> set[tuple[str, str]]:
    """The kind of each bug, and the line that it changes."""
    lines = text.splitlines()
    found = [(bug.kind, bug.applied(text).splitlines()) for bug in bugs_of(path, text)]
    return {(kind, next(one for one, old in zip(new, lines, strict=True) if one != old).strip()) for kind, new in found}


def test_what_is_computed_is_changed() -> None:
    """And not what is asserted, or said."""
    assert edits("tritongen/lang/f.py", CODE) == {
        ("comparison", "return g(a, b) if a <= b and not a else [a + 1][0]"),
        ("condition", "return g(a, b) if a < b or not a else [a + 1][0]"),
        ("condition", "return g(a, b) if a < b and bool(a) else [a + 1][0]"),
        ("one off", "return g(a, b) if a < b and not a else [a + 2][0]"),
        ("one off", "return g(a, b) if a < b and not a else [a + 1][1]"),
        ("arguments", "return g(b, a) if a < b and not a else [a + 1][0]"),
    }


def test_text_of_kernels_is_changed() -> None:
    assert edits("templates/f.jinja", KERNEL) == {
        ("mask", "x = tl.load(ptr, mask=row_mask, other=0.0).to(COMPUTE) * rescale"),
        ("mask", "x = tl.load(ptr, other=0.0).to(COMPUTE) * rescale"),
        ("identity", "x = tl.load(ptr, mask=row_mask & col_mask, other=1.0).to(COMPUTE) * rescale"),
        ("cast", "x = tl.load(ptr, mask=row_mask & col_mask, other=0.0) * rescale"),
        ("rescale", "x = tl.load(ptr, mask=row_mask & col_mask, other=0.0).to(COMPUTE)"),
        ("bound", "m = rows <= n_rows"),
    }


def test_there_are_some_of_each_kind() -> None:
    found = planted(60, seed=0)
    assert [bug.kind for bug in found[: len(KINDS)]] == [*KINDS]
    assert len({bug.path for bug in found}) > 30
    assert all(bug.tests() for bug in found)
