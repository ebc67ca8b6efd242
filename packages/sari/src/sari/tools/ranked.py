"""`search` in `ranked` mode: returns the best snippets for a question, within a budget."""

from __future__ import annotations

from sari.protocol.tooling import Call, ToolResult
from sari.ranking import cold
from sari.ranking.question import read_question
from sari.ranking.snippets import Snippet, pack
from sari.tools.arguments import Arguments, BadArguments
from sari.tools.scope import Scope, path_filter, shown

_DEFAULT_TOKENS = 2_000
_LONGEST_QUESTION = 20_000


def answer_ranked(scope: Scope, arguments: Arguments, call: Call) -> ToolResult:
    text = arguments.text("query")[:_LONGEST_QUESTION]
    question = read_question(text)
    if not question.terms:
        raise BadArguments(
            "`query` holds no word to rank by. Ask a question or name things, e.g. `where sessions expire`."
        )
    keep = path_filter(scope.root, arguments.names("globs"), arguments.names("languages"))
    if scope.terms.usable:
        ranked, complete = scope.terms.ask(text, keep, lambda: call.cancelled)
        note = "" if complete else "The ranked index is being updated; files that changed meanwhile may be missing."
    else:
        paths = cold.candidates(scope.root, question, keep, lambda: call.cancelled)
        ranked, complete = scope.terms.ask_of(text, paths, lambda: call.cancelled), False
        note = "The ranked index is being built; this order is by a quick scan and gets better soon."
    snippets = pack(ranked, scope.terms.content, arguments.number("max_tokens", _DEFAULT_TOKENS))
    structured: dict[str, object] = {
        "matches": [{"path": shown(one.path), "line": one.start, "text": one.text} for one in snippets],
        "total": len(snippets),
        "complete": complete,
        "cursor": None,
    }
    if note:
        structured["note"] = note
    return ToolResult(_as_text(snippets, note), structured)


def _as_text(snippets: list[Snippet], note: str) -> str:
    if not snippets:
        return " ".join(
            ["Nothing in this workspace is about that. Try other words, or `mode` literal.", note]
        ).strip()
    blocks = [f"{shown(one.path)}:{one.start}\n{one.text}" for one in snippets]
    return "\n\n".join([*blocks, *([note] if note else [])])
