"""An MCP server of the older protocol, by hand: it starts in milliseconds and misbehaves as it is told to.

Arguments: `exit` ends at once, `noisy` greets on standard output, `hang` never answers, `stubborn` ignores the end of its
input and SIGTERM, `family` has a child in a session of its own, `deaf` stops reading after the first call, `late` waits
until there is a file `go` beside the file named by the variable `PID_FILE`, `tasks` has tools that need the protocol's
tasks, or may, `pages` has no last page of tools, `same` one page after itself. To that file each start writes its process ids.
"""

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path

TOOLS = [
    {"name": "pid", "inputSchema": {"type": "object"}},
    {"name": "refuse", "inputSchema": {"type": "object"}},
    {"name": "garbage", "inputSchema": {"type": "object"}},
    {"name": "never", "inputSchema": {"type": "object"}},
    {"name": "exit", "inputSchema": {"type": "object"}},
    {"name": "large", "inputSchema": {"type": "object"}},
    {"name": "noise", "inputSchema": {"type": "object"}},
    {"name": "log", "inputSchema": {"type": "object"}},
    {"name": "write", "inputSchema": {"type": "object"}},
]
TASKS = [
    {"name": "as_task", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "required"}},
    {"name": "maybe_task", "inputSchema": {"type": "object"}, "execution": {"taskSupport": "optional"}},
]


def note_pid() -> None:
    with Path(os.environ["PID_FILE"]).open("a") as file:
        file.write(f"{os.getpid()}\n")


def answer(request: dict, **content: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **content}), flush=True)


def call(request: dict) -> None:
    match request["params"]["name"]:
        case "pid":
            answer(request, result={"content": [{"type": "text", "text": str(os.getpid())}]})
        case "refuse":
            # -32000 is also what the SDK uses for a connection that is closed
            answer(request, error={"code": -32000, "message": "not today"})
        case "garbage":
            answer(request, result={"content": "no list"})
        case "large":
            size, id_first = (request["params"]["arguments"][name] for name in ("size", "id_first"))
            result = {"result": {"content": [{"type": "text", "text": "x" * size}]}}
            identity = {"jsonrpc": "2.0", "id": request["id"]}
            print(json.dumps(identity | result if id_first else result | identity), flush=True)
        case "noise":
            for number in range(request["params"]["arguments"]["lines"]):
                print(f"noise {number}")
            answer(request, result={"content": []})
        case "log":
            for number in range(request["params"]["arguments"]["lines"]):
                print(f"{number:>99}", file=sys.stderr)
            answer(request, result={"content": []})
        case "write":
            # what the test says, so many times; ID stands for that of the call
            arguments = request["params"]["arguments"]
            data = base64.b64decode(arguments["data"]).replace(b"ID", str(request["id"]).encode())
            sys.stdout.flush()
            sys.stdout.buffer.write(data * arguments["times"])
            sys.stdout.buffer.flush()
            if arguments["close"]:
                os.close(1)
            elif arguments["answer"]:
                answer(request, result={"content": [{"type": "text", "text": "after all"}]})
        case "exit":
            print("last words", file=sys.stderr, flush=True)
            sys.exit(3)


def serve(behaviour: set[str]) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:  # an answer
            continue
        match request["method"]:
            case "initialize":
                version = request["params"]["protocolVersion"]
                info = {"name": "plain", "version": "1"}
                answer(request, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info})
            case "tools/list" if behaviour & {"pages", "same"}:
                number = int(request.get("params", {}).get("cursor", 0)) + ("pages" in behaviour)
                tools = [{"name": f"t{number}_{item}", "inputSchema": {"type": "object"}} for item in range(2000)]
                answer(request, result={"tools": tools, "nextCursor": str(number)})
            case "tools/list":
                # two pages
                first = "cursor" not in request.get("params", {})
                rest = TOOLS[2:] + TASKS * ("tasks" in behaviour)
                page = {"tools": TOOLS[:2], "nextCursor": "2"} if first else {"tools": rest}
                answer(request, result=page)
            case "tools/call":
                call(request)
                if "deaf" in behaviour:
                    signal.pause()
            case _:
                answer(request, error={"code": -32601, "message": "method not found"})


if __name__ == "__main__":
    behaviour = set(sys.argv[1:])
    note_pid()
    if "exit" in behaviour:
        sys.exit("no configuration found")
    if "family" in behaviour and not os.fork():
        os.setsid()
        note_pid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pause()
    while "late" in behaviour and not Path(os.environ["PID_FILE"]).with_name("go").exists():
        time.sleep(0.01)
    if "hang" in behaviour:
        signal.pause()
    if "noisy" in behaviour:
        print("Welcome!\n", flush=True)
    if "stubborn" in behaviour:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    serve(behaviour)
    if "stubborn" in behaviour:
        signal.pause()
