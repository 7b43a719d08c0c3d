from tests.harness.rotation import SHARE, Emitted, chosen

OPS = [f"op_{number}" for number in range(10)]
TESTS = [Emitted("RowwiseTests", "test_shapes", case, op) for case in range(30) for op in OPS]


def test_every_test_runs_on_a_third_of_the_operators() -> None:
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
