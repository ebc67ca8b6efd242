"""Ranked search: quality on Semble's annotations and on git histories, and speed on a generated tree.

See `bench.sari_ranked` for the variables that name the material; what is not named is left out.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from bench import sari_ranked
from sari.ranking.rank import Ranked
from sari.tools.workspace import open_workspace
from testing.sari import trees

Row = dict[str, object]

_TREE_SIZE = int(os.environ.get("SARI_BENCH_FILES", "100000"))
_ROUNDS = 12
# NDCG@10 over all repositories of the benchmark, as its authors published it.
_PUBLISHED = "BM25 0.673, Semble without a model 0.834, with 0.854, best hybrid 0.862"
_QUESTIONS = (
    "where are expired sessions removed",
    "how does the request handler parse its arguments",
    "unique_000777_fn",
    "return the value of a handler",
    "retry after a timeout and close the connection",
    "function that computes the total",
    "class that keeps the state of a module",
    "import of a package in the first lines",
)


def measure() -> list[Row]:
    rows: list[Row] = []
    semble = os.environ.get("SARI_BENCH_SEMBLE")
    if semble:
        rows += _semble(Path(semble))
    for repository in filter(None, os.environ.get("SARI_BENCH_REPOSITORIES", "").split(":")):
        rows += _commits(Path(repository))
    if _TREE_SIZE:
        rows += _speed(_TREE_SIZE)
    return rows


def _semble(folder: Path) -> list[Row]:
    rows: list[Row] = []
    means: dict[str, list[float]] = {
        "NDCG@10": [],
        "recall at 2,000 tokens": [],
        "tokens to the first right place": [],
    }
    for name, root, tasks in sari_ranked.semble_tasks(folder):
        with sari_ranked.Scratch() as scratch:
            built = sari_ranked.Built(root, scratch)
            figures = [_judge(built, task) for task in tasks]
            built.close()
        for column, values in zip(means, zip(*figures, strict=True), strict=True):
            means[column].append(statistics.fmean(values))
        rows.append({"what": f"Semble, {name}: NDCG@10", "value": means["NDCG@10"][-1], "unit": "of 1"})
    for column, averages in means.items():
        unit = "tokens" if column.startswith("tokens") else "of 1"
        floor: Row = {"peer": _PUBLISHED, "floor": 0.85} if column == "NDCG@10" else {}
        rows.append({"what": f"Semble, mean: {column}", "value": statistics.fmean(averages), "unit": unit, **floor})
    return rows


def _judge(built: sari_ranked.Built, task: sari_ranked.Task) -> tuple[float, float, float]:
    places = built.snippets(task.question, 1_000_000)
    paths = [one.path.decode("utf-8", "replace") for one in places]
    budget = built.snippets(task.question, 2_000)
    within = [one.path.decode("utf-8", "replace") for one in budget]
    found = [
        target
        for target in task.targets
        if any(sari_ranked.is_at(target, path, one.start, one.end) for path, one in zip(within, budget, strict=True))
    ]
    tokens = 0.0
    for path, one in zip(paths, places, strict=True):
        tokens += (len(one.text) + len(path) + 24) / 4
        if any(sari_ranked.is_at(target, path, one.start, one.end) for target in task.targets):
            break
    return sari_ranked.ndcg(places, task.targets), len(found) / len(task.targets), tokens


def _commits(repository: Path) -> list[Row]:
    with sari_ranked.Scratch() as scratch:
        root, tasks = sari_ranked.commit_tasks(repository, scratch / "checkout")
        (scratch / "index").mkdir()
        built = sari_ranked.Built(root, scratch / "index")
        recall, first = sari_ranked.score_commits(tasks, lambda question: _paths(built.ask(question)))
        shallow_recall, shallow_first = sari_ranked.score_commits(
            tasks, lambda question: _paths(built.ask_shallow(question))
        )
        plain_recall, plain_first = sari_ranked.score_commits(tasks, built.plain)
        built.close()
    name = repository.parent.name if repository.name in ("repo", ".git") else repository.name
    about = f"{name}, {len(tasks)} commits"
    return [
        {
            "what": f"{about}: recall@5",
            "value": recall,
            "unit": "of 1",
            "peer": f"BM25 {plain_recall:.3f}",
            "floor": 0.8,
        },
        {"what": f"{about}: MRR", "value": first, "unit": "of 1", "peer": f"BM25 {plain_first:.3f}", "floor": 0.65},
        {"what": f"{about}: recall@5 in a shallow clone", "value": shallow_recall, "unit": "of 1"},
        {"what": f"{about}: MRR in a shallow clone", "value": shallow_first, "unit": "of 1"},
    ]


def _paths(ranked: list[Ranked]) -> list[str]:
    return [one.path.decode("utf-8", "replace") for one in ranked]


class _Call:
    cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        return None


def _speed(size: int) -> list[Row]:
    with sari_ranked.Scratch() as scratch:
        root = trees.generated(scratch / "tree", size)
        workspace = open_workspace(root, scratch / "data")
        began = time.monotonic()
        if not workspace.terms.wait_built(3600):
            raise RuntimeError("the term index was not built in an hour")
        built_s = time.monotonic() - began
        taken: list[float] = []
        for _ in range(_ROUNDS):
            for question in _QUESTIONS:
                start = time.perf_counter()
                workspace.call("search", {"query": question, "mode": "ranked"}, _Call())
                taken.append((time.perf_counter() - start) * 1000)
        bytes_used = workspace.terms.status()["bytes"]
        workspace.close()
    assert isinstance(bytes_used, int)
    taken.sort()
    label = f"{size:,} files"
    return [
        {"what": f"{label}: ranked, p50", "value": taken[len(taken) // 2], "unit": "ms", "floor": 20},
        {"what": f"{label}: ranked, p99", "value": taken[int(len(taken) * 0.99)], "unit": "ms"},
        {"what": f"{label}: trigrams, symbols and terms built after", "value": built_s, "unit": "s"},
        {"what": f"{label}: term index", "value": bytes_used / 1e6, "unit": "MB"},
    ]
