"""Random JSON values, schemas, lists of tools and answers, as bad servers send them: the same ones for the same number."""

import math
import random
from typing import Any

TEXTS = (
    "",
    "a",
    "A",
    "b",
    "string",
    "object",
    "array",
    "null",
    "any",
    "m²",
    "user-id",
    "$filter",
    "class",
    "\ud83d",
    "é\udce9",
    "x" * 9_000,
)
NAMES = (
    "a",
    "A",
    "b",
    "B",
    "required",
    "",
    "user-id",
    "user_id",
    "m²",
    "$filter",
    "class",
    "self",
    "1st",
    "_x",
    "\ud83d",
    "ﬁ",
)
KEYWORDS = [
    "type",
    "properties",
    "required",
    "items",
    "anyOf",
    "oneOf",
    "allOf",
    "$ref",
    "$defs",
    "definitions",
    "additionalProperties",
    "enum",
    "const",
    "default",
    "description",
    "title",
    "minItems",
    "maxItems",
    "prefixItems",
    "not",
    "if",
    "minimum",
    "exclusiveMinimum",
    "format",
    "pattern",
    "propertyNames",
    "examples",
    "patternProperties",
    "nullable",
    "x-other",
]
REFERENCES = (
    "#",
    "#/$defs/A",
    "#/$defs/B",
    "#/properties/a",
    "#/definitions/A",
    "http://x",
    "#/nope",
    "",
    "#/anyOf/0",
    "#/$defs",
)


def scalar(source: random.Random) -> Any:
    return source.choice((None, True, False, 0, -1, 2.5, 10**30, math.nan, math.inf, -math.inf, *TEXTS))


def value(source: random.Random, depth: int = 3) -> Any:
    kind = source.random()
    if depth > 0 and kind < 0.25:
        return {source.choice(NAMES): value(source, depth - 1) for _ in range(source.randrange(4))}
    if depth > 0 and kind < 0.5:
        return [value(source, depth - 1) for _ in range(source.randrange(4))]
    return scalar(source)


def schema(source: random.Random, depth: int = 4) -> Any:
    if depth == 0 or source.random() < 0.1:
        return value(source, 1)
    made: dict[str, Any] = {}
    for keyword in source.sample(KEYWORDS, source.randrange(6)):
        if keyword == "$ref" and source.random() < 0.8:
            made[keyword] = source.choice(REFERENCES)
        elif keyword in ("properties", "$defs", "definitions", "patternProperties") and source.random() < 0.8:
            made[keyword] = {name: schema(source, depth - 1) for name in source.sample(NAMES, source.randrange(4))}
        elif keyword in ("anyOf", "oneOf", "allOf", "prefixItems") and source.random() < 0.7:
            made[keyword] = [schema(source, depth - 1) for _ in range(source.randrange(3))]
        elif keyword == "type" and source.random() < 0.7:
            made[keyword] = source.choice(("object", "array", "string", ["object", "null"], ["string", None]))
        elif keyword == "required" and source.random() < 0.7:
            made[keyword] = source.sample(NAMES, source.randrange(3))
        else:
            made[keyword] = schema(source, depth - 1) if source.random() < 0.5 else value(source, 1)
    return made


def perhaps(source: random.Random, right: Any) -> Any:
    """Mostly what is right."""
    return right if source.random() < 0.7 else value(source, 2)


def tool(source: random.Random) -> Any:
    made = {
        "name": perhaps(source, source.choice(NAMES)),
        "description": perhaps(source, "What it does."),
        "title": perhaps(source, "Title"),
        "inputSchema": schema(source),
        "outputSchema": schema(source),
        "annotations": perhaps(source, {"readOnlyHint": perhaps(source, True)}),
        "execution": perhaps(source, {"taskSupport": perhaps(source, "optional")}),
        "icons": value(source, 1),
        "_meta": value(source, 1),
        "other": value(source, 1),
    }
    kept = {name: item for name, item in made.items() if source.random() < 0.8}
    return kept if source.random() < 0.9 else value(source, 2)


def tool_list(source: random.Random, good: dict[str, Any]) -> dict[str, Any]:
    """A list of tools; one of them is good."""
    tools = [tool(source) for _ in range(source.randrange(5))]
    tools.insert(source.randrange(len(tools) + 1), good)
    made = {"tools": tools, "nextCursor": value(source, 1), "ttlMs": value(source, 0), "_meta": value(source, 1), "other": 1}
    return {name: item for name, item in made.items() if name == "tools" or source.random() < 0.5}


def block(source: random.Random) -> Any:
    kind = source.choice(("text", "image", "audio", "resource", "resource_link", "video", "tool_use", None, 5))
    resource = {"uri": perhaps(source, "file:///a"), source.choice(("text", "blob", "x")): perhaps(source, "AAEC")}
    made = {
        "type": kind,
        "text": perhaps(source, "some text"),
        "data": perhaps(source, "AAEC"),
        "mimeType": perhaps(source, "image/png"),
        "resource": perhaps(source, resource),
        "uri": perhaps(source, "file:///b"),
        "name": perhaps(source, "name"),
        "annotations": value(source, 2),
    }
    kept = {name: item for name, item in made.items() if name == "type" or source.random() < 0.7}
    return kept if source.random() < 0.9 else value(source, 2)


def answer(source: random.Random) -> dict[str, Any]:
    made = {
        "content": perhaps(source, [block(source) for _ in range(source.randrange(4))]),
        "structuredContent": value(source),
        "isError": perhaps(source, False),
        "resultType": perhaps(source, "complete"),
        "_meta": value(source, 1),
        "other": value(source, 1),
    }
    return {name: item for name, item in made.items() if source.random() < 0.6}
