"""What weak models need (`code_actions`): blocks of Python in place of tool calls, repaired arguments, shorter tools."""
