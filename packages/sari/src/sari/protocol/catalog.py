"""The tools, as `tools/list` shows them: names, arguments and answers.

Standard library only and quick to import: the shim answers `tools/list` from here before any daemon runs. How a tool
finds its answer is none of this module's business.
"""

from __future__ import annotations

from collections.abc import Mapping

from sari.protocol.tooling import ToolSpec

KINDS = (
    "class",
    "interface",
    "struct",
    "enum",
    "trait",
    "impl",
    "function",
    "method",
    "constructor",
    "property",
    "field",
    "constant",
    "variable",
    "type",
    "module",
    "namespace",
    "macro",
)
LANGUAGES = (
    "python",
    "javascript",
    "typescript",
    "tsx",
    "go",
    "rust",
    "java",
    "c",
    "cpp",
    "csharp",
    "ruby",
    "php",
    "kotlin",
    "swift",
    "bash",
)

_Schema = Mapping[str, object]

_STRING: _Schema = {"type": "string"}
_INTEGER: _Schema = {"type": "integer"}
_BOOLEAN: _Schema = {"type": "boolean"}
_WORKSPACE: _Schema = {
    "type": "string",
    "description": "Root directory of the workspace, absolute. Default: the client's project.",
}
_CURSOR_OUT: _Schema = {
    "type": ["string", "null"],
    "description": "Pass it back as `cursor` for the next page; null when there is none.",
}
_COMPLETE: _Schema = {
    "type": "boolean",
    "description": "False when something could not be looked at; `note` says what.",
}
_NOTE: _Schema = {"type": "string", "description": "What to know about this answer: partial, stale, by syntax."}


def _argument(kind: str, text: str, **more: object) -> _Schema:
    return {"type": kind, "description": text, **more}


def _many(text: str) -> _Schema:
    return {"anyOf": [{"type": "array", "items": _STRING}, _STRING], "description": text}


def _takes(required: tuple[str, ...] = (), **properties: _Schema) -> _Schema:
    return {
        "type": "object",
        "properties": {**properties, "workspace": _WORKSPACE},
        "required": list(required),
        "additionalProperties": False,
    }


def _gives(required: tuple[str, ...], **properties: _Schema) -> _Schema:
    return {"type": "object", "properties": {**properties, "note": _NOTE}, "required": list(required)}


def _list(item: _Schema) -> _Schema:
    return {"type": "array", "items": item}


def _object(required: tuple[str, ...], **properties: _Schema) -> _Schema:
    return {"type": "object", "properties": properties, "required": list(required)}


_MATCH = _object(
    ("path", "line", "text"),
    path=_STRING,
    line=_INTEGER,
    text=_STRING,
    before=_list(_STRING),
    after=_list(_STRING),
)
_SYMBOL = _object(
    ("name", "kind", "path", "line", "end_line", "container"),
    name=_STRING,
    kind=_STRING,
    path=_STRING,
    line=_INTEGER,
    end_line=_INTEGER,
    container={"type": ["string", "null"]},
)
_USE = _object(("path", "line", "text"), path=_STRING, line=_INTEGER, text=_STRING, container=_STRING, role=_STRING)

_QUERY_GLOBS = _many("Only these paths, as in ripgrep: `src/**`, `*.py`, `!tests/**`. One string or a list.")
_QUERY_LANGUAGES = _many("Only these languages, e.g. `python`, `typescript`. One string or a list.")
_MAX_TOKENS = _argument("integer", "Budget of the answer in tokens. Default 4000.", minimum=100, maximum=200_000)
_CURSOR = _argument("string", "From the previous page's `cursor`, with the same other arguments.")
_NAME = _argument("string", "The bare identifier, e.g. `open_workspace`; no dots, no parentheses.")

TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "search",
        "Search text",
        "Find every line that matches, in all files git does not ignore. Complete: a match on disk is a match here. "
        "`mode` literal (default), regex (ripgrep's syntax; a pattern with \\n or (?s) matches across lines) or words "
        "(literal, whole words). Definitions first, vendored and generated files last. Answers path:line with the lines.",
        _takes(
            ("query",),
            query=_argument("string", "What to look for."),
            mode=_argument(
                "string", "How `query` is read. Default literal.", enum=["ranked", "literal", "regex", "words"]
            ),
            case=_argument(
                "string",
                "smart (default): insensitive unless `query` has a capital.",
                enum=["smart", "sensitive", "insensitive"],
            ),
            globs=_QUERY_GLOBS,
            languages=_QUERY_LANGUAGES,
            context=_argument("integer", "Lines shown around each match. Default 0.", minimum=0, maximum=50),
            max_tokens=_MAX_TOKENS,
            cursor=_CURSOR,
        ),
        _gives(
            ("matches", "total", "complete", "cursor"),
            matches=_list(_MATCH),
            total=_INTEGER,
            complete=_COMPLETE,
            cursor=_CURSOR_OUT,
        ),
    ),
    ToolSpec(
        "find_files",
        "Find files",
        "Find files by name, fuzzily: `usrctl` finds src/user_controller.py. Best first. An empty query lists files.",
        _takes(
            ("query",),
            query=_argument("string", "Part of a path, letters in order."),
            globs=_QUERY_GLOBS,
            limit=_argument("integer", "At most this many. Default 50.", minimum=1, maximum=5000),
        ),
        _gives(("files",), files=_list(_object(("path",), path=_STRING)), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "symbols",
        "Find definitions",
        "Find where classes, functions, methods, types and constants are defined, by (part of) their name.",
        _takes(
            ("query",),
            query=_argument("string", "Name or part of it; `Class.method` narrows by container."),
            kind=_many(f"Only these kinds: {', '.join(KINDS)}."),
            languages=_QUERY_LANGUAGES,
            limit=_argument("integer", "At most this many. Default 50.", minimum=1, maximum=2000),
        ),
        _gives(("symbols",), symbols=_list(_SYMBOL), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "outline",
        "Outline a file",
        "A file's classes, functions and other definitions, nested, with their lines. Cheaper than reading the file.",
        _takes(("path",), path=_argument("string", "File, relative to the workspace or absolute within it.")),
        _gives(
            ("path", "symbols"), path=_STRING, language=_STRING, symbols=_list({"type": "object"}), complete=_COMPLETE
        ),
    ),
    ToolSpec(
        "references",
        "Find uses",
        "Uses of a name in code, without comments and strings. By syntax, not by types: same-named things are all listed.",
        _takes(("name",), name=_NAME, path=_argument("string", "Only within this file or folder.")),
        _gives(("references",), references=_list(_USE), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "callers",
        "Find callers",
        "Calls of a function or method by its name, each with the function that makes the call. By syntax.",
        _takes(("name",), name=_NAME),
        _gives(("callers",), callers=_list(_USE), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "implementations",
        "Find implementations",
        "Types that extend or implement a type, and methods that define a name again. By syntax.",
        _takes(("name",), name=_NAME),
        _gives(("implementations",), implementations=_list(_SYMBOL), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "read",
        "Read a file",
        "Lines of a file with their numbers: a range (1-based, inclusive) or one symbol's lines. Default: from the start.",
        _takes(
            ("path",),
            path=_argument("string", "File, relative to the workspace or absolute within it."),
            start=_argument("integer", "First line, counted from 1.", minimum=1),
            end=_argument("integer", "Last line, inclusive.", minimum=1),
            symbol=_argument("string", "Read this definition instead, e.g. `Class.method`."),
        ),
        _gives(
            ("path", "start", "end", "text"),
            path=_STRING,
            start=_INTEGER,
            end=_INTEGER,
            text=_STRING,
            total_lines=_INTEGER,
            complete=_COMPLETE,
        ),
    ),
    ToolSpec(
        "recent",
        "Recent changes",
        "What changed lately: files not yet committed, files by time of change, and the last commits' files.",
        _takes(
            limit=_argument("integer", "At most this many. Default 30.", minimum=1, maximum=1000),
            since=_argument("string", "`2h`, `3d`, `1w`, or a date such as 2026-01-31."),
        ),
        _gives(
            ("files",),
            files=_list(
                _object(("path", "changed", "source"), path=_STRING, changed=_STRING, source=_STRING, commit=_STRING)
            ),
        ),
    ),
    ToolSpec(
        "repo_map",
        "Map the repository",
        "The tree with its most referenced symbols, within a token budget. A good first call in an unknown repository.",
        _takes(max_tokens=_MAX_TOKENS),
        _gives(
            ("files",),
            files=_list(_object(("path", "symbols"), path=_STRING, symbols=_list(_STRING))),
            total_files=_INTEGER,
            complete=_COMPLETE,
        ),
    ),
    ToolSpec(
        "status",
        "Index status",
        "What is indexed and how fresh it is.",
        _takes(),
        _gives(
            ("root", "state", "files", "indexed"),
            root=_STRING,
            state=_STRING,
            files=_INTEGER,
            indexed=_INTEGER,
            pending=_INTEGER,
            watching=_STRING,
            writer=_BOOLEAN,
            index_bytes=_INTEGER,
            symbols=_object((), files=_INTEGER, parsed=_INTEGER),
        ),
    ),
    ToolSpec(
        "rescan",
        "Rescan",
        "Compare the whole workspace with the index now and update what differs. Rarely needed.",
        _takes(),
        _gives(("changed", "files"), changed=_INTEGER, files=_INTEGER),
    ),
    ToolSpec(
        "doctor",
        "Diagnose",
        "Check the index against the files on disk, and say what is wrong and how to fix it.",
        _takes(),
        _gives(
            ("ok", "checks"),
            ok=_BOOLEAN,
            checks=_list(
                _object(
                    ("name", "ok", "detail"), name=_STRING, ok=_BOOLEAN, detail=_STRING, fix=_STRING, mend=_STRING
                )
            ),
        ),
    ),
)

BY_NAME: Mapping[str, ToolSpec] = {spec.name: spec for spec in TOOLS}
