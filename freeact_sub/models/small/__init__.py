"""Help for weak models: blocks of Python in place of tool calls, repaired arguments, shorter tools."""
