"""One turn: a model request, its response, and the tool calls in it; our border to pydantic-ai.

A run is a sequence of turns (`../runs/model_run.py`). `PlainTurns` (`plain.py`) makes them while nothing unusual happens;
pydantic-ai makes those of runs with a typed answer, capabilities or toolsets of a user, or spans, and goes on after a call
that is not valid. All that we do in them hangs in pydantic-ai's hooks (`hooks.py`), which both call; what these share is
`Turns` (`turns.py`). One turn, in order:

0.  `CompactionHooks.before_model_request` (`../context/compactor.py`): a conversation that would fill the model's window is
    shortened, which may take a request of its own (`SingleRequests`). It comes before a user's capabilities.
1.  `ToolFilter.prepare_tools` (`../children/type_effects.py`): the tools that the agent's type leaves it.
2.  `RunBudget.prepare_tools` (`budget_hooks.py`): if no turn is left, the run must end, and no tools are offered.
3.  `CallHooks.before_model_request` (`call_hooks.py`): withholds the spawning tools if no child may be started.
4.  `RunBudget.before_model_request`: `Booking.reserve` (`../budgets/booking.py`) estimates the request and sets aside what
    it may take, for the agent and all above it; it may wait for requests of others. If too little is left, the request
    becomes the last report (the salvage), or the run ends.
5.  The request is made. `RequestProgress` (`progress.py`) shows one that takes long, `InnerTasks` (`inner_tasks.py`) notes
    the tasks of pydantic-ai, and `EmittingModel` (`stream.py`) streams it and emits text and thinking as they come. A
    request that brings no response is given up (`PaidRequests.wrap_model_request`): `Booking.give_up` books what was sent.
6.  `RunBudget.after_model_request`: `Booking.settle` books what the response took and emits UsageUpdated.
7.  `AnswerHooks.after_model_request` (`answer_hooks.py`): `AnswerCheck.check` (`answer_check.py`; for small models with
    `substance.py`) asks once more for an answer that is cut off or empty, or ends the run.
8.  For each tool call in the response, side by side: the arguments are validated. If some are wrong or there is no such
    tool, pydantic-ai takes over, and `CallHooks.on_tool_validate_error` says in a sentence what is wrong with the arguments.
    `UnmadeCalls` (`unmade.py`) counts and reports such calls before the next request. Else `CallHooks.wrap_tool_execute` has
    `ToolCalls.make` (`calls.py`) emit ToolCallStarted, count the call, ask for approval, run the tool, and emit ToolOutput.
    `on_tool_execute_error` turns an exception of the tool into an answer; `bound_result` (`tools/result_bounds.py`) cuts
    what the model reads.
    The calls of code in a cell go through `ToolCalls.make` as well (`../from_code/base.py`).
9.  `Repeats` (`repeats.py`) notices a call that repeats with the same result: the model is advised, then the run ends.
10. `AnswerHooks.after_node_run`: a model that would end its run while children are working is asked about them once.

Whoever decides that the run must end notes the reason (`Turns.ended`), because a user's capability may turn our refusal into
a normal result; the loop makes the status of it. `single_request.py` makes one request without tools (`ask`): steps 4 to 7.
"""
