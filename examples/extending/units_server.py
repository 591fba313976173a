"""An MCP server over stdio that converts units: `python units_server.py` is its command in an `mcp.json`."""

from typing import TypedDict

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

# unit: (quantity, factor, offset), where value in the base unit = value * factor + offset
UNITS = {
    "degC": ("temperature", 1.0, 273.15),
    "degF": ("temperature", 5 / 9, 273.15 - 32 * 5 / 9),
    "K": ("temperature", 1.0, 0.0),
    "mm": ("length", 0.001, 0.0),
    "cm": ("length", 0.01, 0.0),
    "m": ("length", 1.0, 0.0),
    "inch": ("length", 0.0254, 0.0),
    "m/s": ("speed", 1.0, 0.0),
    "km/h": ("speed", 1 / 3.6, 0.0),
    "knot": ("speed", 1852 / 3600, 0.0),
}


class Rule(TypedDict):
    """How one unit becomes another."""

    factor: float
    offset: float


READS = ToolAnnotations(readOnlyHint=True)
server = MCPServer("units", instructions=f"Converts between units of one quantity: {', '.join(UNITS)}.")


@server.tool(annotations=READS)
def convert(value: float, from_unit: str, to_unit: str) -> float:
    """Convert one value."""
    rule = conversion(from_unit, to_unit)
    return round(value * rule["factor"] + rule["offset"], 6)


@server.tool(annotations=READS)
def conversion(from_unit: str, to_unit: str) -> Rule:
    """The rule for converting many values: value * factor + offset."""
    (from_quantity, factor, offset), (to_quantity, to_factor, to_offset) = _unit(from_unit), _unit(to_unit)
    if from_quantity != to_quantity:
        raise ValueError(f"{from_unit} is a unit of {from_quantity}, {to_unit} of {to_quantity}")
    return {"factor": factor / to_factor, "offset": (offset - to_offset) / to_factor}


def _unit(name: str) -> tuple[str, float, float]:
    if name not in UNITS:
        raise ValueError(f"unknown unit {name!r}: there are {', '.join(UNITS)}")
    return UNITS[name]


if __name__ == "__main__":
    server.run()
