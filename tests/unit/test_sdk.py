"""The names that the package promises."""

import subprocess
import sys
import typing

import freeact_sub


def test_every_promised_name_is_there_and_every_name_that_is_there_is_promised():
    assert sorted(freeact_sub.__all__) == freeact_sub.__all__
    assert set(freeact_sub.__all__) == set(freeact_sub._HOME_OF)
    for name in freeact_sub.__all__:
        assert getattr(freeact_sub, name) is not None
    assert set(dir(freeact_sub)) == set(freeact_sub.__all__)


def test_an_unknown_name_is_an_attribute_error():
    assert not hasattr(freeact_sub, "Agnet")


def test_importing_the_package_imports_nothing_heavy():
    code = "import sys, freeact_sub; print([m for m in ('pydantic', 'zmq', 'rich', 'pydantic_ai', 'asyncio') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_statuses_are_the_ones_that_the_design_names():
    from freeact_sub.events import RunStatus

    assert set(typing.get_args(RunStatus)) == {
        "completed",
        "failed",
        "timeout",
        "limit",
        "cancelled",
        "rejected",
        "kernel_lost",
    }
