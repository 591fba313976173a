"""Help for weak models (`code_actions`): blocks of Python instead of tool calls, repaired arguments, shorter tools."""
