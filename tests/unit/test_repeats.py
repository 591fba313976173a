from freeact_sub.agents.repeats import TOLD_AT, Repeats, advice

CODE = {"code": "print(x)"}


def times(*calls):
    repeats = Repeats()
    return [repeats.seen(turn, "execute_ipython_cell", args, text, failed=failed) for turn, args, text, failed in calls]


def test_the_same_call_with_the_same_result_is_counted():
    assert times(*((turn, CODE, "1", False) for turn in range(1, 5))) == [1, 2, 3, 4]


def test_a_call_whose_result_changes_is_no_circle():
    assert times(*((turn, CODE, f"{turn} rows", False) for turn in range(1, 5))) == [1, 1, 1, 1]


def test_another_call_in_between_begins_anew():
    assert times((1, CODE, "1", False), (2, CODE, "1", False), (3, {"code": "y"}, "1", False), (4, CODE, "1", False)) == [
        1,
        2,
        1,
        1,
    ]


def test_calls_side_by_side_count_once():
    assert times(*((1, CODE, "yes", False) for _ in range(5)), (2, CODE, "yes", False)) == [1] * 5 + [2]


def test_the_same_error_of_different_calls_is_counted_wherever_it_is():
    error = "Cell In[{0}], line {0}\nNameError: name 'x' of <object at 0x7f{0}> is not defined"
    assert times(*((turn, {"code": f"x + {turn}"}, error.format(turn), True) for turn in range(1, 5))) == [1, 2, 3, 4]


def test_a_success_in_between_ends_a_row_of_errors():
    error = "KeyError: 'a'"
    assert (
        times(
            (1, {"code": "1"}, error, True), (2, {"code": "2"}, error, True), (3, CODE, "1", False), (4, CODE, error, True)
        )[-1]
        == 1
    )


def test_the_advice_says_what_repeats_and_what_else_there_is():
    assert "the same error 3 times" in advice(TOLD_AT, failed=True)
    assert "answer now" in advice(TOLD_AT, failed=False)
