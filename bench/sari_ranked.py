"""Quality of ranked search: on Semble's annotations, and on commits (the message asks, the files changed answer).

Nothing of either is in this repository. `SARI_BENCH_SEMBLE` names a folder with `repos.json`, `annotations/` and the
checkouts under `checkouts/NAME`; `SARI_BENCH_REPOSITORIES` names git repositories, separated by `:`. A repository is
indexed as it was before the last commits, and asked with their messages, so that no answer is in the history that sari
reads. The tree is as recent as enough questions allow: in one of years ago, the code that a message is about may not exist.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sari.index import ripgrep
from sari.languages import catalog
from sari.languages.read import read_text, symbols_of
from sari.ranking.corpus import Corpus
from sari.ranking.extract import file_terms
from sari.ranking.file_history import FileHistory
from sari.ranking.file_kind import FileKind, kind_of
from sari.ranking.git_log import read_history
from sari.ranking.rank import Ranked
from sari.ranking.ranker import FileContent, answer, file_content
from sari.ranking.snippets import Snippet, pack
from sari.ranking.term_segment import TermSegment, write_segment
from sari.ranking.terms import count_terms
from sari.ranking.weights import DEFAULT, Weights

# How far back the indexed commit is, along first parents: the nearest one with enough questions after it is used.
_WINDOWS = (60, 100, 150, 200, 300, 400, 500)
_ENOUGH_QUESTIONS = 75
_MOST_QUESTIONS = 150
_MOST_ANSWERS = 3
_MOST_CHANGED = 10
_ROUTINE = re.compile(r"(?i)(?:bump|merge|release|revert|version)")


@dataclass(frozen=True, slots=True)
class Target:
    """A right answer: a file, or some lines of it."""

    path: str
    start: int = 0
    end: int = 1 << 40


@dataclass(frozen=True, slots=True)
class Task:
    question: str
    targets: tuple[Target, ...]


class Built:
    """A folder, indexed in this process."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        base = os.fsencode(root)
        began = time.monotonic()
        found = (
            file_terms(base, path, [one.name for one in parsed.symbols] if parsed else ())
            for path in sorted(ripgrep.files(root))
            for parsed in (symbols_of(base, path),)
        )
        segment_at = folder / "0.terms"
        write_segment(segment_at, [file for file in found if file is not None])
        self.segment = TermSegment(segment_at)
        where = {path: number for number, path in enumerate(self.segment.paths)}
        self.corpus = Corpus([self.segment], where, read_history(root))
        self.shallow = Corpus([self.segment], where, FileHistory())
        self.build_s = time.monotonic() - began
        self.bytes = segment_at.stat().st_size
        self._contents: dict[bytes, FileContent | None] = {}
        self._plain: dict[str, list[tuple[int, int]]] | None = None

    def content(self, path: bytes) -> FileContent | None:
        if path not in self._contents:
            base = os.fsencode(self.root)
            read, parsed = read_text(base, path, 1 << 20), symbols_of(base, path)
            lines = [] if read is None else read[0].decode("utf-8", "replace").split("\n")
            self._contents[path] = file_content(lines, parsed.symbols if parsed else [])
        return self._contents[path]

    def ask(self, question: str, weights: Weights = DEFAULT) -> list[Ranked]:
        return answer(self.corpus, question, self.content, weights=weights)

    def ask_shallow(self, question: str) -> list[Ranked]:
        """Answer as in a shallow clone, which has no history to read."""
        return answer(self.shallow, question, self.content)

    def snippets(self, question: str, max_tokens: int) -> list[Snippet]:
        return pack(self.ask(question), self.content, max_tokens)

    def plain(self, question: str) -> list[str]:
        """Plain BM25 over source files, the peer."""
        if self._plain is None:
            self._plain = {}
            for number, path in enumerate(self.segment.paths):
                content = self.content(path)
                for term, count in count_terms("\n".join(content.lines) if content else "").items():
                    self._plain.setdefault(term, []).append((number, count))
        lengths = self.segment.body_lengths
        mean = sum(lengths) / max(1, len(lengths))
        scores: Counter[int] = Counter()
        for term in count_terms(question):
            holding = self._plain.get(term, [])
            rarity = math.log(1 + (len(lengths) - len(holding) + 0.5) / (len(holding) + 0.5))
            for number, count in holding:
                scores[number] += rarity * count / (count + 1.2 * (0.25 + 0.75 * lengths[number] / mean))  # type: ignore[assignment]
        ordered = (self.segment.paths[number].decode("utf-8", "replace") for number, _ in scores.most_common(100))
        return [path for path in ordered if kind_of(path) is FileKind.SOURCE][:10]

    def close(self) -> None:
        self.segment.close()


def semble_tasks(folder: Path) -> Iterator[tuple[str, Path, list[Task]]]:
    """Each annotated repository that is checked out: its name, the folder to index, its tasks."""
    for spec in json.loads((folder / "repos.json").read_bytes()):
        annotations = folder / "annotations" / f"{spec['name']}.json"
        root = folder / "checkouts" / spec["name"] / (spec.get("benchmark_root") or "")
        if annotations.exists() and root.is_dir():
            tasks = [
                Task(one["query"], tuple(_target(raw) for raw in (*one["relevant"], *one.get("secondary", ()))))
                for one in json.loads(annotations.read_bytes())
            ]
            yield spec["name"], root, tasks


def _target(raw: str | dict[str, object]) -> Target:
    if isinstance(raw, str):
        return Target(raw)
    return Target(str(raw["path"]), int(str(raw["start_line"])), int(str(raw["end_line"])))


def is_at(target: Target, path: str, start: int, end: int) -> bool:
    """Whether a place is a right answer; either path may begin further up."""
    same = path == target.path or path.endswith("/" + target.path) or target.path.endswith("/" + path)
    return same and start <= target.end and end >= target.start


def ndcg(snippets: Sequence[Snippet], targets: Sequence[Target], most: int = 10) -> float:
    """Normalised discounted cumulative gain of the first `most` places."""
    gains = [0] * most
    for target in targets:
        for number, one in enumerate(snippets[:most]):
            if is_at(target, one.path.decode("utf-8", "replace"), one.start, one.end):
                gains[number] = 1
                break
    ideal = sum(1 / math.log2(number + 2) for number in range(min(most, len(targets))))
    return sum(gain / math.log2(number + 2) for number, gain in enumerate(gains)) / ideal


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", os.fspath(root), *arguments], capture_output=True, check=True, timeout=300)
    return done.stdout.decode("utf-8", "replace")


def commit_tasks(repository: Path, into: Path) -> tuple[Path, list[Task]]:
    """A checkout of some commits ago, and the questions that came after."""
    newest, *older = git(repository, "rev-list", "--first-parent", f"-n{_WINDOWS[-1] + 1}", "HEAD").split()
    subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", repository, into], check=True, timeout=300)
    tasks: list[Task] = []
    base = newest
    for window in _WINDOWS:
        base = older[min(window, len(older)) - 1]
        tasks = list(_tasks_between(into, base, newest))
        if len(tasks) >= _ENOUGH_QUESTIONS or window >= len(older):
            break
    git(into, "checkout", "-q", base)
    return into, tasks[:_MOST_QUESTIONS]


def _tasks_between(repository: Path, base: str, newest: str) -> Iterator[Task]:
    there = set(git(repository, "ls-tree", "-r", "-z", "--name-only", base).split("\0"))
    log = git(
        repository, "log", "--no-merges", "--no-renames", "--name-only", "--format=%x01%B%x03", f"{base}..{newest}"
    )
    for record in log.split("\x01")[1:]:
        message, _, names = record.partition("\x03")
        changed = [name for name in names.strip().split("\n") if name]
        answers = [path for path in changed if catalog.of_path(path) and kind_of(path) is FileKind.SOURCE]
        usable = 0 < len(answers) <= _MOST_ANSWERS and len(changed) <= _MOST_CHANGED and there.issuperset(answers)
        if usable and len(message.split()) > 2 and not _ROUTINE.match(message):
            yield Task(message.strip(), tuple(Target(path) for path in answers))


def recall_and_reciprocal(found: Sequence[str], targets: Sequence[Target]) -> tuple[float, float]:
    """Which share of the answers is among the first five, and one over the first right one's place."""
    wanted = {target.path for target in targets}
    recall = len(wanted.intersection(found[:5])) / len(wanted)
    return recall, next((1 / (place + 1) for place, path in enumerate(found[:10]) if path in wanted), 0.0)


def score_commits(tasks: Sequence[Task], ask: Callable[[str], list[str]]) -> tuple[float, float]:
    results = [recall_and_reciprocal(ask(task.question), task.targets) for task in tasks]
    count = max(1, len(results))
    return sum(recall for recall, _ in results) / count, sum(first for _, first in results) / count


class Scratch:
    """A folder that goes when it is done with."""

    def __enter__(self) -> Path:
        self._folder = Path(tempfile.mkdtemp(prefix="sari-ranked-"))
        return self._folder

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
