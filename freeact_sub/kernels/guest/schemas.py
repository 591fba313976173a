"""Converts types to JSON schemas, and children's answers to values. Sent into every kernel as source.

pydantic does it if the kernel's Python has it. Otherwise the converter below knows the builtin types, their
generic forms, `Literal`, unions, enums, dataclasses and typed dicts. jsonschema holds values against a JSON schema.
"""

import dataclasses
import enum
import importlib
import json
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Literal, Union

Decode: typing.TypeAlias = Callable[[Any], Any]
"""Converts JSON to a value of the type; raises ValueError with a text that a model can act on."""

SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType)
SEQUENCES = (list, tuple, set, frozenset)
ADVICE = "give a pydantic model, a dataclass, a TypedDict, a JSON schema, or a builtin type such as int or list[str]"


def schema_of(output: Any) -> tuple[dict[str, Any], Decode]:
    """Return the JSON schema of a type, and the function that turns an answer into a value of it.

    Raises:
        TypeError: The type has no JSON schema.
    """
    if isinstance(output, dict):
        return of_json_schema(output)
    if isinstance(output, FUNCTIONS):
        return of_converter(output)  # it says what can be given; pydantic would call the function with the answer
    try:
        pydantic: Any = importlib.import_module("pydantic")
    except ImportError:
        return of_converter(output)
    try:
        return of_pydantic(pydantic, output)
    except (pydantic.errors.PydanticUserError, TypeError, NameError):
        return of_converter(output)  # some that pydantic refuses, such as a TypedDict of Python 3.11, are known to it


def of_json_schema(schema: dict[str, Any]) -> tuple[dict[str, Any], Decode]:
    """Return a JSON schema unchanged, with a decoder that validates by jsonschema."""
    try:
        jsonschema: Any = importlib.import_module("jsonschema")
        registry = importlib.import_module("referencing").Registry()  # knows nothing: no schema is fetched from anywhere
    except ImportError as error:
        raise TypeError(f"output: a JSON schema needs the package jsonschema in the kernels' Python, or {ADVICE}") from error
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
        schema = json.loads(json.dumps(schema))
    except (jsonschema.SchemaError, TypeError, ValueError) as error:
        raise TypeError(f"output: it is not a JSON schema: {str(error).splitlines()[0]}") from error
    validator = kind(schema, registry=registry)

    def decode(value: Any) -> Any:
        errors = [f"{error.json_path}: {error.message}"[:500] for error in validator.iter_errors(value)]
        if errors:
            raise ValueError("; ".join(errors[:5]))
        return value

    return schema, decode


def of_pydantic(pydantic: Any, output: Any) -> tuple[dict[str, Any], Decode]:
    """Describe a type with pydantic."""
    adapter = pydantic.TypeAdapter(output)
    schema = adapter.json_schema()

    def decode(value: Any) -> Any:
        try:
            return adapter.validate_json(json.dumps(value))
        except pydantic.ValidationError as error:
            problems = [f"{'.'.join(map(str, item['loc'])) or 'the answer'}: {item['msg']}" for item in error.errors()]
            raise ValueError("; ".join(problems[:5])) from error

    return schema, decode


def of_converter(output: Any) -> tuple[dict[str, Any], Decode]:
    """Describe a type without pydantic."""
    converter = Converter()
    schema = converter.schema(output)
    if converter.definitions:
        schema = {**schema, "$defs": converter.definitions}
    return schema, lambda value: converter.value(output, value, "the answer")


class Converter:
    """Types without pydantic: their schemas, and values of them."""

    def __init__(self) -> None:
        self.definitions: dict[str, Any] = {}
        """Schemas of the classes met so far, by name."""

    def schema(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type; `definitions` collects the classes it names."""
        origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
        if kind is Any:
            return {}
        if kind in SCALARS or kind is None:
            return {"type": SCALARS[type(None) if kind is None else kind]}
        if origin is Literal:
            return {"enum": list(arguments)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.schema(item) for item in arguments]}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.schema(arguments[1]) if arguments else True}
        if origin in SEQUENCES:
            return self._sequence(origin, arguments)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            return {"enum": [item.value for item in kind]}
        return self._class(kind)

    def _sequence(self, origin: Any, arguments: tuple[Any, ...]) -> dict[str, Any]:
        if is_fixed(origin, arguments):
            size = len(arguments)
            return {"type": "array", "prefixItems": [*map(self.schema, arguments)], "minItems": size, "maxItems": size}
        schema = {"type": "array", "items": self.schema(arguments[0]) if arguments else {}}
        return schema | ({"uniqueItems": True} if origin in (set, frozenset) else {})

    def _class(self, kind: Any) -> dict[str, Any]:
        fields = fields_of(kind)
        if fields is None:
            raise TypeError(f"output: {kind!r} has no JSON schema: {ADVICE}")
        if kind.__name__ not in self.definitions:
            self.definitions[kind.__name__] = {}  # it may hold itself
            self.definitions[kind.__name__] = {
                "type": "object",
                "properties": {name: self.schema(item) for name, (item, _) in fields.items()},
                "required": [name for name, (_, required) in fields.items() if required],
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{kind.__name__}"}

    def value(self, kind: Any, value: Any, where: str) -> Any:
        """Return a value of the type, from JSON.

        Raises:
            ValueError: The JSON does not have the type; the text says where.
        """
        origin, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
        if kind is Any:
            return value
        if kind in SCALARS or kind is None:
            return self._scalar(type(None) if kind is None else kind, value, where)
        if origin is Literal:
            if not any(value == item and type(value) is type(item) for item in arguments):
                raise ValueError(f"{where} must be one of {arguments}, not {value!r}")
            return value
        if origin in (Union, types.UnionType):
            return self._one_of(arguments, value, where)
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            try:
                return kind(value)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from error
        return self._container(kind, origin, arguments, value, where)

    def _scalar(self, kind: Any, value: Any, where: str) -> Any:
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ValueError(f"{where} must be {SCALARS[kind]}, not {value!r}")
        return value

    def _one_of(self, kinds: tuple[Any, ...], value: Any, where: str) -> Any:
        problems = []
        for kind in kinds:
            try:
                return self.value(kind, value, where)
            except ValueError as error:
                problems.append(str(error))
        raise ValueError(" or ".join(problems))

    def _container(self, kind: Any, origin: Any, arguments: tuple[Any, ...], value: Any, where: str) -> Any:
        if origin in SEQUENCES:
            if not isinstance(value, list):
                raise ValueError(f"{where} must be an array, not {value!r}")
            return origin(self._items(origin, arguments, value, where))
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be an object, not {value!r}")  # noqa: TRY004  # the value is wrong, not the code
        if origin is dict:
            inner = arguments[1] if arguments else Any
            return {name: self.value(inner, item, f"{where}.{name}") for name, item in value.items()}
        return self._object(kind, value, where)

    def _items(self, origin: Any, arguments: tuple[Any, ...], value: list[Any], where: str) -> Iterator[Any]:
        fixed = is_fixed(origin, arguments)
        if fixed and len(value) != len(arguments):
            raise ValueError(f"{where} must have {len(arguments)} items, not {len(value)}")
        kinds = arguments if fixed else [arguments[0] if arguments else Any] * len(value)
        for index, (kind, item) in enumerate(zip(kinds, value, strict=True)):
            yield self.value(kind, item, f"{where}[{index}]")

    def _object(self, kind: Any, value: dict[str, Any], where: str) -> Any:
        fields = fields_of(kind) or {}
        missing = [name for name, (_, required) in fields.items() if required and name not in value]
        unknown = [name for name in value if name not in fields]
        if missing or unknown:
            raise ValueError(f"{where}: missing {missing}, unknown {unknown}")
        return kind(**{name: self.value(fields[name][0], item, f"{where}.{name}") for name, item in value.items()})


def is_fixed(origin: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether a type is a tuple with a separate type for each item."""
    return origin is tuple and bool(arguments) and arguments[-1] is not Ellipsis


def fields_of(kind: Any) -> dict[str, tuple[Any, bool]] | None:
    """Return the type of each field of a dataclass or typed dict, and whether it is needed. None: another class."""
    if typing.is_typeddict(kind):
        return {name: (item, name in kind.__required_keys__) for name, item in typing.get_type_hints(kind).items()}
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        return None
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        field.name: (hints[field.name], field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }
