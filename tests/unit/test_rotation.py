from tests.harness.rotation import SHARE, Emitted, chosen, sampled

OPS = [f"op_{number}" for number in range(10)]
TESTS = [Emitted("RowwiseTests", "test_shapes", case, op) for case in range(30) for op in OPS]


def test_every_test_runs_on_its_share_of_the_operators() -> None:
    found = chosen(TESTS)
    for case in range(30):
        assert len(OPS) // SHARE <= sum(test.case == case for test in found) <= len(OPS) // SHARE + 1


def test_every_operator_runs_some_of_its_tests() -> None:
    assert {test.op for test in chosen(TESTS)} == {*OPS}


def test_a_test_of_one_operator_alone_runs() -> None:
    alone = Emitted("RowwiseTests", "test_alone", 0, "op_0")
    assert chosen([alone]) == {alone}


def test_the_order_of_tests_does_not_matter() -> None:
    assert chosen(TESTS[::-1]) == chosen(TESTS)


def test_turns_leave_nothing_out() -> None:
    assert frozenset[Emitted]().union(*(chosen(TESTS, turn) for turn in range(SHARE))) == {*TESTS}
    cases = [f"test[{number}]" for number in range(23)]
    assert sorted(case for turn in range(7) for case in sampled("test", cases, 7, turn)) == sorted(cases)


def test_each_turn_runs_something() -> None:
    """Of a table with fewer cases than its share, too."""
    assert all(sampled("test", ["test[a]", "test[b]"], 5, turn) for turn in range(10))


def test_a_part_of_a_product_has_values_of_both_factors() -> None:
    cases = [f"test[{one}-{other}]" for one in range(8) for other in range(3)]
    found = [case.rstrip("]").split("-")[1] for case in sampled("test", cases, 3)]
    assert {*found} == {"0", "1", "2"}
