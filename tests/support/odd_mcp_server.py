"""A server on standard streams that sends what the test says. Arguments: its pages of tools, and its answers by tool, as JSON.

An answer that is a text is sent as it is. A tool without an answer returns its name and arguments as JSON.
"""

import json
import sys
from typing import Any

OBJECT = {"type": "object", "properties": {}}
GOOD = {"name": "good", "inputSchema": OBJECT}


def config(*pages: list[Any], **results: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [__file__, json.dumps(pages), json.dumps(results)]}


def answer(request: dict[str, Any], pages: list[list[Any]], results: dict[str, Any]) -> Any:
    params = request.get("params", {})
    match request["method"]:
        case "initialize":
            info = {"name": "odd", "version": "1"}
            return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            number = int(params.get("cursor", 0))
            return {"tools": pages[number], "nextCursor": number + 1 if number + 1 < len(pages) else None}
        case "tools/call":
            told = json.dumps([params["name"], params.get("arguments")])
            return results.get(params["name"], {"content": [{"type": "text", "text": told}]})
    return {}


def serve() -> None:
    pages, results = json.loads(sys.argv[1]), json.loads(sys.argv[2])
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            result = answer(request, pages, results)
            text = result if isinstance(result, str) else json.dumps(result)
            print(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},"result":{text}}}', flush=True)


if __name__ == "__main__":
    serve()
