"""What weak models need: blocks of Python in place of tool calls, wrong arguments put right, shorter tools."""
