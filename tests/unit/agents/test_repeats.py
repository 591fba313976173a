from support.tables import each

from freeact_sub.agents.call import Repeats, advice

CODE = {"code": "print(x)"}


def times(*calls, seconds=0.0):
    repeats = Repeats()
    return [
        repeats.count(turn, "execute_ipython_cell", args, text, failed=failed, seconds=seconds)
        for turn, args, text, failed in calls
    ]


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


def test_the_same_error_of_one_call_is_counted_wherever_it_is():
    error = "Cell In[{0}], line {0}\nNameError: name 'x' of <object at 0x7f{0}> is not defined"
    assert times(*((turn, CODE, error.format(turn), True) for turn in range(1, 5))) == [1, 2, 3, 4]


def test_the_same_error_of_different_calls_is_no_circle():
    error = "URLError: <urlopen error [Errno 101] Network is unreachable>"
    assert times(*((turn, {"code": f"urlopen('http://h{turn}')"}, error, True) for turn in range(1, 5))) == [1, 1, 1, 1]


@each(
    "code",
    [
        "import time\ntime.sleep(30)\nos.path.exists('result.csv')",
        "await asyncio.sleep (1)",
        "!sleep 30; ls",
        "%%bash\nsleep 2.5\nls",
    ],
)
def test_a_cell_that_sleeps_is_no_repetition(code):
    assert times(*((turn, {"code": code}, "False", False) for turn in range(1, 5))) == [0, 0, 0, 0]
    assert times(*((turn, {"code": code}, "KeyError: 1", True) for turn in range(1, 5))) == [0, 0, 0, 0]


def test_a_call_that_takes_its_time_is_no_repetition():
    assert times(*((turn, CODE, "running", False) for turn in range(1, 5)), seconds=5.1) == [0, 0, 0, 0]
    assert times(*((turn, {"action": "wait"}, "running", False) for turn in range(1, 5)), seconds=60) == [0, 0, 0, 0]
    assert times(*((turn, CODE, "1", False) for turn in range(1, 5)), seconds=4.9)[-1] == 4


def test_the_advice_says_what_repeats_and_what_else_there_is():
    assert "the same error, 3 times" in advice(3, failed=True)
    assert "answer now" in advice(3, failed=False)
