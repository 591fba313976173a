"""One turn: a model request, its response, and the tool calls in it; our border to pydantic-ai.

A run is a sequence of turns, which pydantic-ai's `Agent` makes. All that we do in them hangs in its hooks: the methods of
`RunHooks` (`run_hooks.py`), which share `Turns` (`turns.py`). One turn, in order:

1.  `prepare_tools`: the tools that the agent's type leaves it (`../rights.py`). If no turn is left, the run
    must end, and no tools are offered.
2.  `wrap_model_request`: of children that begin alike the first is sent first, so that the others read its prefix from
    the provider's cache (`prefix_of`). `RequestProgress` shows a request that takes long, `InnerTasks` (both in
    `turns.py`) notes the tasks of pydantic-ai, and `Booking.paid` (`../budgets/booking.py`) gives up a request that brings
    no response.
3.  The capabilities of features, in front of a user's (`RunPart.capability`): a conversation that would fill the window of
    the model is shortened, which may take a request of its own (`SingleRequests`).
4.  `before_model_request`: withholds the spawning tools if no child may be started. `Booking.reserve` estimates the request
    and sets aside what it may take, for the agent and all above it; it may wait for requests of others. If too little is
    left, the request becomes the last report (the salvage), or the run ends.
5.  The request is made, and pydantic-ai streams it; `emit_events` emits text and thinking as they come.
6.  `after_model_request`: `Booking.settle` books what the response took and emits UsageUpdated. `AnswerCheck.check`
    (`answer_check.py`) asks once more for an answer that is cut off or empty, or ends
    the run.
7.  For each tool call in the response, side by side: the arguments are validated. If some are wrong or there is no such
    tool, pydantic-ai answers; `on_tool_validate_error` says in a sentence what is wrong with the arguments, and
    `UnmadeCalls` counts and reports such calls before the next request. Else `wrap_tool_execute` has
    `ModelCalls` (`model_calls.py`) make the call: `make` (`../call.py`) emits ToolCallStarted, counts the call, asks
    for approval, runs the tool, and emits ToolOutput. `on_tool_execute_error` turns an exception of the tool into an answer;
    `bound_result` (`tools/result_bounds.py`) cuts what the model reads.
    The calls of code in a cell go through `make` as well (`../requests.py`).
8.  `Repeats` notices a call that repeats with the same result: the model is advised, then the run ends.
9.  `after_node_run`: features read what a person has sent to the working agent, and it is handed on (`PersonMessages`). A
    model that would end its run while children are working is asked about them once, and features may have the run go on.

Whoever decides that the run must end notes the reason (`Turns.ended`), because a user's capability may turn our refusal into
a normal result; the loop makes the status of it. `../ask.py` makes one request without tools (`ask`): steps 4 to 6.
"""
