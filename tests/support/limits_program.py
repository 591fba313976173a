"""A program for tests: a conversation whose cells, turns and window are short."""

import sys

import scripted_conversation as conversation
from pydantic_ai.messages import ModelMessage
from scripted_conversation import cell

from freeact_sub.config.budget import RootBudget
from freeact_sub.config.schema import Config, ContextConfig, KernelConfig
from freeact_sub.events.json_lines import json_line

WAITING = """\
import pathlib, threading
while not pathlib.Path({name!r}).exists():
    threading.Event().wait(0.01)
print({name!r}, 'is there')"""
SUMMARY = "## Facts\n\n- **three** tables were counted\n- none has a gap\n"

conversation.TURNS |= {
    "wait": lambda names: [cell(WAITING.format(name=names[0])), "the cell has ended"],
    "turns": lambda names: [*(cell(f"print({name!r})") for name in names), "all turns are made"],
    "say": lambda names: ["word " * int(names[0])],
}


def script(messages: list[ModelMessage], info: object) -> object:
    """Sum up, or do what the prompt says."""
    return SUMMARY if "<conversation>" in json_line(str(messages[-1])) else told(messages, info)


told, conversation.script = conversation.script, script


def settings(**given: object) -> Config:
    """Short limits."""
    kernel = KernelConfig(cell_timeout_seconds=1, sandbox="off")
    short = {"kernel": kernel, "budget": RootBudget(turns=2), "context": ContextConfig(window_tokens=12_000), "mode": "full"}
    return Config(**given | short)


conversation.Config = settings

if __name__ == "__main__":
    sys.exit(conversation.main())
