"""The OpenAPI 3.1 document of the server, from the table of its operations."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pydantic.json_schema import models_json_schema

from .....core.version import __version__
from . import answer_shapes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from .operations import Operation

_REF = "#/components/schemas/{model}"
_REFUSALS = {
    "400": "The input cannot be used.",
    "401": "A token is needed.",
    "403": "This is not allowed.",
    "404": "There is no such document or index.",
    "408": "The body took too long.",
    "409": "Another process writes the index.",
    "413": "The body is too large.",
    "421": "This is another host.",
    "422": "A document or a model cannot be used.",
    "429": "Too many requests wait: try again after the seconds in `Retry-After`.",
    "503": "The answer took too long, or the index cannot be read.",
}


def describe(operations: Mapping[str, Mapping[str, Operation]]) -> dict[str, Any]:
    """Return the document.

    :param operations: path -> method -> operation.
    """
    models = {operation.output for methods in operations.values() for operation in methods.values()}
    inputs = {operation.input for methods in operations.values() for operation in methods.values()}
    pairs: list[Any] = [(model, "serialization") for model in models | {answer_shapes.Problem, answer_shapes.Health}]
    pairs += [(model, "validation") for model in inputs]
    names, definitions = models_json_schema(pairs, ref_template=_REF)
    schemas = definitions.get("$defs", {})
    paths: dict[str, Any] = {
        path: {operation.method.lower(): _operation(path, operation, names, schemas) for operation in methods.values()}
        for path, methods in operations.items()
    }
    for prefix in ("", "/indexes/{index}"):
        paths[f"{prefix}/files/{{id}}"] = {"get": _file(f"{prefix}/files/{{id}}")}
    paths["/health"] = {
        "get": _plain("Whether the server answers.", "health", names[answer_shapes.Health, "serialization"])
    }
    paths["/metrics"] = {"get": _plain("Metrics in the text format of Prometheus.", "metrics", None)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Binocle", "version": __version__, "description": "Semantic search over documents."},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(path: str, operation: Operation, names: Mapping[Any, Any], schemas: Mapping[str, Any]) -> dict[str, Any]:
    reference = names[operation.input, "validation"]
    schema = schemas[reference["$ref"].rsplit("/", 1)[-1]]
    in_path = _in_path(path)
    parameters = [_parameter(name, schema, where="path") for name in in_path]
    described: dict[str, Any] = {
        "summary": (operation.call.__doc__ or "").split("\n")[0],
        "operationId": _id_of(operation.method, path),
        "responses": _responses(names[operation.output, "serialization"], reads=operation.method == "GET"),
    }
    if operation.method == "GET":
        in_url = [name for name in schema.get("properties", {}) if name not in in_path]
        parameters += [_parameter(name, schema, where="query") for name in in_url]
    elif set(schema.get("properties", {})) - set(in_path):
        body = {"application/json": {"schema": _without(schema, in_path) if in_path else reference}}
        described["requestBody"] = {"required": True, "content": body}
    return described | ({"parameters": parameters} if parameters else {})


def _without(schema: Mapping[str, Any], names: list[str]) -> dict[str, Any]:
    """The schema of a body without the fields that are in the path."""
    properties = {name: value for name, value in schema["properties"].items() if name not in names}
    required = [name for name in schema.get("required", []) if name not in names]
    return {**schema, "properties": properties, "required": required}


def _parameter(name: str, schema: Mapping[str, Any], *, where: str) -> dict[str, Any]:
    field = schema.get("properties", {}).get(name, {"type": "string"})
    if name == "where":
        field = {"type": "array", "items": {"type": "string"}, "description": field["description"]}
    field = _in_url(field)
    return {
        "name": name,
        "in": where,
        "required": where == "path" or name in schema.get("required", ()),
        "schema": field,
    }


def _in_url(field: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a parameter, which is absent and never null."""
    field = {key: value for key, value in field.items() if key not in ("default", "title")}
    options = [option for option in field.pop("anyOf", []) if option != {"type": "null"}]
    return field | (options[0] if options else {})


def _file(path: str) -> dict[str, Any]:
    answer = {"description": "The file.", "content": {"application/pdf": {"schema": {}}}}
    return {
        "summary": "A PDF file of the indexed folder, as it was indexed.",
        "operationId": _id_of("GET", path),
        "parameters": [_parameter(name, {}, where="path") for name in _in_path(path)],
        "responses": {"200": answer, **_refusals()},
    }


def _id_of(method: str, path: str) -> str:
    return re.sub(r"\W+", "_", f"{method.lower()}{path}").strip("_")


def _in_path(path: str) -> list[str]:
    return re.findall(r"{(\w+)}", path)


def _responses(output: Mapping[str, Any], *, reads: bool) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": output}}}
    }
    if reads:
        responses["200"]["headers"] = {"ETag": {"description": "Of the index.", "schema": {"type": "string"}}}
        responses["304"] = {"description": "The index has not changed since this ETag."}
    return responses | _refusals()


def _refusals(codes: Iterable[str] = _REFUSALS) -> dict[str, Any]:
    problem = {"application/problem+json": {"schema": {"$ref": _REF.format(model="Problem")}}}
    return {code: {"description": _REFUSALS[code], "content": problem} for code in codes}


def _plain(summary: str, name: str, schema: Mapping[str, Any] | None) -> dict[str, Any]:
    content: dict[str, Any] = {"text/plain": {"schema": {"type": "string"}}}
    if schema is not None:
        content = {"application/json": {"schema": schema}}
    return {
        "summary": summary,
        "operationId": name,
        "responses": {"200": {"description": "The answer.", "content": content}, **_refusals(("401", "403", "421"))},
    }
