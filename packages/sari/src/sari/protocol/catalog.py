"""The tools as `tools/list` shows them: names, arguments and results.

Uses only the standard library and imports quickly: the shim answers `tools/list` from here before any daemon runs.
Contains no implementation of the tools.
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
# The server's instructions describe it. A description in each tool would cost its tokens eleven times.
_WORKSPACE: _Schema = _STRING
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
# By file, and in it the text of each line by its number: no longer than the same as text.
_USES = _object(("path", "lines"), path=_STRING, lines={"type": "object", "additionalProperties": _STRING})
_IN_FILE = _object(("path", "symbols"), path=_STRING, symbols=_list(_STRING))

_COMMIT = _object(
    ("commit", "date", "author", "message"),
    commit=_STRING,
    date=_STRING,
    author=_STRING,
    message=_STRING,
    paths=_list(_STRING),
    more_paths=_INTEGER,
)

_EDIT: dict[str, _Schema] = {
    "apply": _STRING,
    "max_tokens": _argument("integer", "", minimum=100, maximum=200_000),
    "key": _STRING,
}
_EDITED = _gives(
    ("files", "applied", "preview"),
    files=_list(_object(("path",), path=_STRING, diff=_STRING)),
    applied=_BOOLEAN,
    preview=_STRING,
    total=_INTEGER,
    start=_INTEGER,
    end=_INTEGER,
)

_QUERY_GLOBS = _many("e.g. src/**, *.py, !tests/**")
_QUERY_LANGUAGES = _many("")
_MAX_TOKENS = _argument("integer", "", minimum=100, maximum=200_000)
_CURSOR = _argument("string", "")
_NAME = _argument("string", "")

TOOLS: tuple[ToolSpec, ...] = (
    ToolSpec(
        "search",
        "Search text",
        "Use it instead of grep: all text that git does not ignore. `mode` ranked answers a question (where is session "
        "expiry handled?) with the best places: begin with it when you do not know the name. literal (default), regex and "
        "words list every matching line.",
        _takes(
            ("query",),
            query=_STRING,
            mode={"type": "string", "enum": ["ranked", "literal", "regex", "words"]},
            case={"type": "string", "enum": ["smart", "sensitive", "insensitive"]},
            globs=_QUERY_GLOBS,
            languages=_QUERY_LANGUAGES,
            context=_argument("integer", "", minimum=0, maximum=50),
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
        "Find files by name, fuzzily: `usrctl` finds src/user_controller.py. Faster than find.",
        _takes(
            ("query",),
            query=_STRING,
            globs=_many(""),
            limit=_argument("integer", "", minimum=1, maximum=5000),
        ),
        _gives(("files",), files=_list(_object(("path",), path=_STRING)), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "symbols",
        "Find definitions",
        "Where something is defined, by `name`, a part of it or `Class.name`. Unlike grep, definitions only.",
        _takes(
            ("query",),
            query=_STRING,
            kind=_many(""),
            languages=_QUERY_LANGUAGES,
            limit=_argument("integer", "", minimum=1, maximum=2000),
        ),
        _gives(("symbols",), symbols=_list(_SYMBOL), total=_INTEGER, complete=_COMPLETE),
    ),
    ToolSpec(
        "outline",
        "Outline a file",
        "A file's definitions with their lines, nested. Call it before reading a large file.",
        _takes(("path",), path=_STRING),
        _gives(("path", "symbols"), path=_STRING, language=_STRING, symbols=_list(_STRING), complete=_COMPLETE),
    ),
    ToolSpec(
        "references",
        "Find uses",
        "Uses of a name in code: grep without comments and strings.",
        _takes(
            ("name",),
            name=_NAME,
            path=_STRING,
            max_tokens=_MAX_TOKENS,
            cursor=_CURSOR,
        ),
        _gives(
            ("references",),
            references=_list(_USES),
            by=_STRING,
            total=_INTEGER,
            complete=_COMPLETE,
            cursor=_CURSOR_OUT,
        ),
    ),
    ToolSpec(
        "callers",
        "Find callers",
        "Who calls a function or method: each call with the function around it.",
        _takes(("name",), name=_NAME, max_tokens=_MAX_TOKENS, cursor=_CURSOR),
        _gives(
            ("callers",), callers=_list(_USES), by=_STRING, total=_INTEGER, complete=_COMPLETE, cursor=_CURSOR_OUT
        ),
    ),
    ToolSpec(
        "implementations",
        "Find implementations",
        "Types that extend or implement a type, and overrides of a method.",
        _takes(("name",), name=_NAME, max_tokens=_MAX_TOKENS, cursor=_CURSOR),
        _gives(
            ("implementations",),
            implementations=_list(_IN_FILE),
            by=_STRING,
            total=_INTEGER,
            complete=_COMPLETE,
            cursor=_CURSOR_OUT,
        ),
    ),
    ToolSpec(
        "read",
        "Read a file",
        "Numbered lines of a file: a range, or one definition (`symbol`), which costs less.",
        _takes(
            ("path",),
            path=_STRING,
            start={"type": "integer", "minimum": 1},
            end={"type": "integer", "minimum": 1},
            symbol=_STRING,
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
        "Files changed lately: uncommitted, by time, and in the last commits.",
        _takes(
            limit=_argument("integer", "", minimum=1, maximum=1000),
            since=_argument("string", "2h, 3d, 1w or a date."),
        ),
        _gives(
            ("files",),
            files=_list(
                _object(("path", "changed", "source"), path=_STRING, changed=_STRING, source=_STRING, commit=_STRING)
            ),
        ),
    ),
    ToolSpec(
        "history",
        "Search history",
        "Commits that touched lines, a symbol, a text or a path. `query` asks their messages: was this fixed before?",
        _takes(
            query=_STRING,
            path=_STRING,
            symbol=_STRING,
            start={"type": "integer", "minimum": 1},
            end={"type": "integer", "minimum": 1},
            text=_STRING,
            regex=_BOOLEAN,
            max_tokens=_MAX_TOKENS,
            cursor=_CURSOR,
        ),
        _gives(("commits",), commits=_list(_COMMIT), complete=_COMPLETE, cursor=_CURSOR_OUT),
    ),
    ToolSpec(
        "repo_map",
        "Map the repository",
        "The files and symbols that other code depends on most: a first call in an unknown repository.",
        _takes(max_tokens=_MAX_TOKENS),
        _gives(
            ("files",),
            files=_list(_IN_FILE),
            total_files=_INTEGER,
            complete=_COMPLETE,
        ),
    ),
    ToolSpec(
        "rename_symbol",
        "Rename a symbol",
        "Rename a definition and its uses. Shows a diff; pass its `preview` as `apply` to write.",
        _takes(("name", "new_name"), name=_NAME, new_name=_STRING, path=_STRING, **_EDIT),
        _EDITED,
        read_only=False,
    ),
    ToolSpec(
        "replace_symbol",
        "Replace a definition",
        "Replace a definition by `text`; `apply` as above.",
        _takes(("path", "symbol", "text"), path=_STRING, symbol=_STRING, text=_STRING, **_EDIT),
        _EDITED,
        read_only=False,
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
        listed=False,
    ),
    ToolSpec(
        "rescan",
        "Rescan",
        "Compare the whole workspace with the index now and update what differs. Rarely needed.",
        _takes(),
        _gives(("changed", "files"), changed=_INTEGER, files=_INTEGER),
        listed=False,
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
        listed=False,
    ),
)

BY_NAME: Mapping[str, ToolSpec] = {spec.name: spec for spec in TOOLS}
