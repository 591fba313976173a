"""Record what a real model replies, for the tests of how replies are read: `python -m benchmarks.record_replies --help`.

Each line of the file is one reply: what was asked, in short, and the reply as the server sent it. What must be made of it
(`expected`) is written by people, never by the program under test. A case that the file has already is not asked again.

Two forms of asking:

- `tools`: the tools are offered to the server, which may read calls by itself;
- `block`: the prompt of `code_actions = "block"`.
"""

import argparse
import asyncio
import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from freeact_sub.config.schema import Config
from freeact_sub.models import build_model
from freeact_sub.models.blocks import as_text, without_tools
from freeact_sub.tools.toolset import load_definition

Form: TypeAlias = Literal["tools", "block"]

INSTRUCTIONS = """\
You are an agent that acts by running Python code. You have an IPython kernel of your own: variables, imports and functions \
stay there from cell to cell. Its working directory is /home/user/project.
- Run code to look at files, compute, and change things, instead of guessing. Keep cells small.
- When you are done, answer in plain text, with what the user needs to know."""


@dataclass(frozen=True)
class Said:
    """A prompt of the user's."""

    text: str


@dataclass(frozen=True)
class Ran:
    """A cell that the model ran, and what came back."""

    code: str
    result: str
    outcome: Literal["success", "failed", "denied"] = "success"


@dataclass(frozen=True)
class Case:
    """A conversation that the model is to continue."""

    name: str
    turns: Sequence[Said | Ran | str]
    tools: tuple[str, ...] = ("execute_ipython_cell", "reset_kernel", "task")


NAME_ERROR = """\
NameError: name 'fibonacci' is not defined
  line 1: print(fibonacci(20))"""
KEY_ERROR = """\
KeyError: 'price'
  line 3: print(sum(row['price'] for row in rows))"""

CASES = (
    Case("sum-of-squares", [Said("Compute the sum of the squares of 1 to 100.")]),
    Case("fibonacci", [Said("What is the 20th Fibonacci number? Compute it.")]),
    Case("primes", [Said("How many prime numbers are there below 1000?")]),
    Case("reverse", [Said("Reverse the string 'harbour valley ridge' and tell me the result.")]),
    Case("mean", [Said("Calculate mean and standard deviation of 3, 7, 7, 19, 24.")]),
    Case("weekday", [Said("Which day of the week was 14 July 1989?")]),
    Case("factorial-digits", [Said("Find the sum of the digits of 50 factorial.")]),
    Case("list-files", [Said("List the files of the working directory with their sizes.")]),
    Case("count-lines", [Said("Count the lines of the file notes.txt.")]),
    Case("write-file", [Said("Create a file squares.csv with the numbers 1 to 10 and their squares.")]),
    Case(
        "read-csv",
        [Said("Sum up amount times price over the lines of sales.csv, which has the columns item, amount, price.")],
    ),
    Case("json-file", [Said("Write the dictionary {'a': 1, 'b': [2, 3]} to data.json and read it back to check it.")]),
    Case("delegate", [Said("Use a child agent to find out how many words the file report.txt has, and tell me.")]),
    Case(
        "delegate-two", [Said("Start two child agents: one counts the lines of a.txt, one those of b.txt. Add the two up.")]
    ),
    Case("explain", [Said("Explain what a list comprehension is, with a short example.")]),
    Case("explain-code", [Said("What does this code do? `print(sorted(set(x) & set(y)))`")]),
    Case("difference", [Said("What is the difference between a list and a tuple in Python?")]),
    Case("how-would-i", [Said("How would I read a large file line by line in Python? Do not run anything.")]),
    Case("hello", [Said("Hello! What can you do?")]),
    Case("capital", [Said("What is the capital of Norway?")]),
    Case(
        "fix-name-error",
        [Said("What is the 20th Fibonacci number? Compute it."), Ran("print(fibonacci(20))", NAME_ERROR, outcome="failed")],
    ),
    Case(
        "fix-key-error",
        [
            Said("What is the sum of the column Price of sales.csv?"),
            Ran(
                "import csv\nrows = list(csv.DictReader(open('sales.csv')))\nprint(sum(row['price'] for row in rows))",
                KEY_ERROR,
                outcome="failed",
            ),
        ],
    ),
    Case(
        "fix-file",
        [
            Said("How many lines has notes.txt?"),
            Ran("print(len(open('note.txt').readlines()))", "FileNotFoundError: No such file: 'note.txt'", outcome="failed"),
        ],
    ),
    Case(
        "answer-sum",
        [
            Said("Compute the sum of the squares of 1 to 100."),
            Ran("total = sum(n * n for n in range(1, 101))\nprint(total)", "338350"),
        ],
    ),
    Case(
        "answer-files",
        [
            Said("Which files are here?"),
            Ran("import os\nprint(os.listdir())", "['notes.txt', 'report.txt', 'sales.csv']"),
        ],
    ),
    Case(
        "next-step",
        [
            Said("Find the longest word of notes.txt and write it, in capitals, to longest.txt."),
            Ran("words = open('notes.txt').read().split()\nprint(max(words, key=len))", "observatory"),
        ],
    ),
    Case(
        "nothing-printed",
        [
            Said("Compute 17 ** 9."),
            Ran("result = 17 ** 9", "(the cell ran and put nothing out)"),
        ],
    ),
    Case(
        "follow-up",
        [
            Said("Compute the sum of the squares of 1 to 100."),
            Ran("total = sum(n * n for n in range(1, 101))\nprint(total)", "338350"),
            "The sum of the squares of 1 to 100 is 338350.",
            Said("And of the cubes?"),
        ],
    ),
    Case(
        "follow-up-explain",
        [
            Said("Compute the sum of the squares of 1 to 100."),
            Ran("total = sum(n * n for n in range(1, 101))\nprint(total)", "338350"),
            "The sum of the squares of 1 to 100 is 338350.",
            Said("Show me the code that you used, and explain it."),
        ],
    ),
    Case(
        "denied",
        [
            Said("Delete all files that end in .tmp."),
            Ran(
                "import glob, os\nfor name in glob.glob('*.tmp'):\n    os.remove(name)",
                "denied: keep old.tmp",
                outcome="denied",
            ),
        ],
    ),
)


def conversation(case: Case) -> list[ModelMessage]:
    """The messages of a case, in pydantic-ai's form."""
    messages: list[ModelMessage] = []
    for number, turn in enumerate(case.turns):
        if isinstance(turn, Said):
            messages.append(ModelRequest(parts=[UserPromptPart(turn.text)]))
        elif isinstance(turn, Ran):
            call = ToolCallPart("execute_ipython_cell", {"code": turn.code}, tool_call_id=f"call-{number}")
            messages.append(ModelResponse(parts=[call]))
            result = ToolReturnPart(call.tool_name, turn.result, call.tool_call_id, outcome=turn.outcome)
            messages.append(ModelRequest(parts=[result]))
        else:
            messages.append(ModelResponse(parts=[TextPart(turn)]))
    return messages


def summary(case: Case) -> list[list[str]]:
    """The turns of a case, as the file has them."""
    known = {Said: "said", Ran: "ran", str: "answered"}
    return [
        [known[type(turn)], *(dataclasses.astuple(turn) if isinstance(turn, Said | Ran) else [turn])] for turn in case.turns
    ]


def conversation_of(asked: Sequence[Sequence[str]]) -> list[ModelMessage]:
    """The messages that a line of the file tells of."""
    made: dict[str, Callable[..., Said | Ran | str]] = {"said": Said, "ran": Ran, "answered": str}
    return conversation(Case("", [made[kind](*values) for kind, *values in asked]))


def parameters(case: Case) -> ModelRequestParameters:
    """What the agent's loop would ask with."""
    tools = [load_definition(name) for name in case.tools]
    return ModelRequestParameters(function_tools=tools, instruction_parts=[InstructionPart(content=INSTRUCTIONS)])


def asked(case: Case, form: Form) -> tuple[list[ModelMessage], ModelRequestParameters]:
    """Messages and parameters in one form of asking."""
    messages, wanted = conversation(case), parameters(case)
    if form == "block":
        return as_text(messages), without_tools(wanted)
    return messages, wanted


async def record(model: Model, case: Case, form: Form, settings: ModelSettings) -> dict[str, Any]:
    """Ask once."""
    messages, wanted = asked(case, form)
    response = await model.request(messages, settings, wanted)
    calls = [{"name": call.tool_name, "args": call.args} for call in response.tool_calls]
    # the text as it came, also where pydantic-ai has made several parts of it
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    return {"text": text, "calls": calls, "finish": response.finish_reason}


async def main() -> None:
    """Ask for every case that the file does not have."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--base-url", required=True)
    arguments.add_argument("--model", default="local")
    arguments.add_argument("--forms", nargs="+", default=["tools", "block"])
    arguments.add_argument("--cases", nargs="+", default=[case.name for case in CASES])
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--temperature", type=float, default=0.2)
    arguments.add_argument("--output", type=Path, required=True)
    options = arguments.parse_args()
    known = options.output.read_text(encoding="utf-8").splitlines() if options.output.exists() else []
    done = {json.loads(line)["id"] for line in known}
    settings = ModelSettings(temperature=options.temperature, seed=options.seed, max_tokens=320)
    async with build_model(Config(model=f"openai-chat:{options.model}", base_url=options.base_url)) as model:
        for form in options.forms:
            for case in (case for case in CASES if case.name in options.cases):
                name = f"{case.name}/{form}/{options.seed}"
                if name in done:
                    continue
                reply = await record(model, case, form, settings)
                line = json.dumps({"id": name, "form": form, "asked": summary(case), "reply": reply}, ensure_ascii=False)
                with options.output.open("a", encoding="utf-8") as file:  # nothing else runs here
                    file.write(line + "\n")
                print(name, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
