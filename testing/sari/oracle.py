"""ripgrep as the oracle: the matching lines according to `rg --json` on the same tree, and queries to compare.

Reads ripgrep's JSON instead of its lines, so that a bug in sari's parser of the latter cannot hide.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from sari.index.ripgrep import PROGRAM
from sari.index.search import Query, fetch, search
from sari.index.workspace_index import WorkspaceIndex

Lines = set[tuple[bytes, int]]


def by_ripgrep(root: Path, query: Query, alone: Sequence[str] = ()) -> Lines:
    """Return ripgrep's matches. Files of the globs `alone` are searched separately, with nothing read before them."""
    found = _run(root, query, [part for glob in alone for part in ("--glob", f"!{glob}")])
    return found.union(*(_run(root, query, ["--glob", glob]) for glob in alone))


def _run(root: Path, query: Query, extra: Sequence[str]) -> Lines:
    command = [PROGRAM, "--no-config", "--hidden", "--glob", "!.git", *extra, "--json", *query.flags(), "./"]
    done = subprocess.run(command, cwd=root, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=120)
    assert done.returncode in (0, 1), done.stderr.decode()
    found: Lines = set()
    for row in done.stdout.splitlines():
        event = json.loads(row)
        if event["type"] == "match":
            data = event["data"]
            path = _bytes(data["path"]).removeprefix(b"./")
            text = _bytes(data["lines"])
            for offset in range(max(1, text.count(b"\n") + (not text.endswith(b"\n")))):
                found.add((path, data["line_number"] + offset))
    return found


def _bytes(value: dict[str, str]) -> bytes:
    return value["text"].encode() if "text" in value else base64.b64decode(value["bytes"])


def by_index(index: WorkspaceIndex, query: Query) -> Lines:
    """Return sari's matches, with every line fetched."""
    found, _ = search(index, query)
    fetch(index, found, list(found.counts))
    return {(path, hit.line) for path, hits in found.hits.items() for hit in hits}


compared: Counter[str] = Counter()
"""How many queries were asked of both, so far, in this process."""


def differences(index: WorkspaceIndex, root: Path, queries: Sequence[Query], alone: Sequence[str] = ()) -> list[str]:
    """Return one line for each query whose results differ."""
    wrong = []
    compared.update(queries=len(queries))
    for query in queries:
        mine, theirs = by_index(index, query), by_ripgrep(root, query, alone)
        if mine != theirs:
            wrong.append(f"{query}: missing {sorted(theirs - mine)[:3]}, too many {sorted(mine - theirs)[:3]}")
    return wrong


_TEMPLATES = (
    "{w}", r"{w}\b", r"\b{w}", r"^\s*{w}", "{w}$", r"{w}\s+\w+", "({w}|{v})", "({w}|{v}){x}?", r"{w}.*{v}", "{w}+",
    "{w}{{0,2}}{v}", r"[a-z]+{w}", r"(?i){w}", r"(?i:{w})_?\d*", r"{w}[_.\s(]", r"\w{{3}}{w}", "(?:{w})?{v}",
    r"{w}\W+{v}", r"\d+{w}|{v}", r"(?s){w}.{v}", r"{w}\n", r"{w}\s*\n\s*\w", r"(?P<n>{w})", r"{w}[^a-z]*$",
    r"\x{{{h}}}\w+", r"{w}\x20", r"\p{{Lu}}{w}", "{w}|{v}|{x}", r"(a|{w})b?",
)  # fmt: skip


def queries(rng: random.Random, root: Path, count: int) -> list[Query]:
    """Return random literals, words and regexes, mostly from the files' content."""
    files = [
        Path(base) / name
        for base, folders, names in os.walk(root)
        if ".git" not in Path(base).parts
        for name in names
    ]
    files = [file for file in sorted(files) if file.is_file() and not file.is_symlink()]
    made: list[Query] = []
    while len(made) < count:
        text = rng.choice(files).read_bytes()[:200_000].decode("utf-8", "replace").replace("\0", "")
        words = re.findall(r"[^\W\d][\w]{2,20}", text)
        if not words:
            continue
        w, v, x = (rng.choice(words) for _ in range(3))
        case = rng.choice(("smart", "smart", "sensitive", "insensitive"))
        match rng.randrange(6):
            case 0:
                made.append(Query(w[rng.randrange(2) :] or w, "literal", case))
            case 1:
                made.append(Query(w, "words", case))
            case 2:
                start = rng.randrange(len(text))
                piece = text[start : start + rng.randrange(2, 25)].replace("\r", "").strip("\n")
                made.append(Query(piece.partition("\n")[0] or w, "literal", case))
            case _:
                pattern = rng.choice(_TEMPLATES).format(w=w, v=v, x=x, h=f"{ord(w[0]):x}")
                made.append(Query(pattern, "regex", case))
    return made
