"""What emitted tests declare of several steps at once."""

from __future__ import annotations

from tritongen.testing.tests import declared_together


def test_tiles_are_as_wide_as_all_need() -> None:
    wide, narrow = {"narrowest": "128", "splits": "(2, 3)"}, {"narrowest": "32", "splits": "(4,)"}
    assert declared_together(wide, narrow) == {"narrowest": "128", "splits": "(4,)"}
    assert declared_together(narrow, {}, wide) == {"narrowest": "128", "splits": "(2, 3)"}
    assert declared_together({"narrowest": ""}, {"shifts": "(1,)"}) == {"narrowest": "", "shifts": "(1,)"}
