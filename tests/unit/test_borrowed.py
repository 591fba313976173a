"""Each private name of another library that ours uses is still there, and each that is used stands in the list here."""

import argparse
import asyncio
import atexit
import inspect
import threading

import cloudpickle.cloudpickle
import pytest
from ipykernel.iostream import IOPubThread, OutStream
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQInteractiveShell
from openai import AsyncOpenAI
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.openai import OpenAIStreamedResponse
from support.package_source import borrowed
from support.tables import each
from traitlets import HasTraits

from benchmarks.structure import BORROWED

PLACES = {
    IPKernelApp: "_bind_socket",
    IPythonKernel: "_restore_input _supports_kernel_subshells _allow_stdin _parent_ident",
    IOPubThread: (
        "_events _handle_event _handle_pipe_msg _handle_subscription _is_master_process _really_send "
        "_run_event_pipe_gc _setup_event_pipe _setup_pipe_in _setup_pipe_out _setup_xpub_listener"
    ),
    OutStream: "_buffer_lock _flush _schedule_flush _setup_stream_redirects",
    Model: "_start_request_deadline",
    StreamedResponse: "_parts_manager",
    OpenAIStreamedResponse: "_model_profile",
    ZMQInteractiveShell: "_showtraceback _last_traceback _last_traceback_during_displayhook",
    argparse.ArgumentParser: "_check_value",
    asyncio.Task: "_log_traceback",
    atexit: "_ncallbacks",
    asyncio.tasks: "_leave_task",
    asyncio: "_set_running_loop",
    cloudpickle.cloudpickle: (
        "_DYNAMIC_CLASS_TRACKER_BY_CLASS _DYNAMIC_CLASS_TRACKER_BY_ID _code_reduce _function_getstate _function_setstate "
        "_make_empty_cell"
    ),
    threading: "_register_atexit",
}
"""By the class or module that has them. Those of classes may be set in their methods only."""
LIMIT = 40
OF_INSTANCES = {"_trait_values": HasTraits, "_client": lambda: AsyncOpenAI(api_key="k")}


@pytest.mark.slow
def test_each_name_that_is_used_stands_in_the_list_which_is_short():
    listed = {name for names in PLACES.values() for name in names.split()} | OF_INSTANCES.keys()
    assert set().union(*borrowed().values()) <= listed
    assert len(listed) <= LIMIT


@each(("place", "name"), [(place, name) for place, names in PLACES.items() for name in names.split()])
def test_the_library_still_has_the_name(place, name):
    if hasattr(place, name) or name in getattr(place, "__annotations__", {}):
        return
    ours_to_set = [kind for kind in place.__mro__ if kind.__module__.startswith("ipykernel")]
    assert any(f"self.{name}" in inspect.getsource(kind) for kind in ours_to_set)


@pytest.mark.parametrize(("name", "kind"), OF_INSTANCES.items())
def test_an_object_of_the_library_still_has_the_name(name, kind):
    assert name in vars(kind())


@pytest.mark.slow
def test_only_files_for_it_use_private_names():
    outside = {name for name in borrowed() if not name.rpartition(".")[2].startswith(BORROWED)}
    assert outside == set()
