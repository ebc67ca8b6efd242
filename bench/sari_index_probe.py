"""One sari workspace in a process of its own, measured: `python -m bench.sari_index_probe ROOT DATA` with queries on stdin.

Prints one JSON object: first index, memory, and for each query the times of a warm answer's first page.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from sari.tools.workspace import Workspace, open_workspace


class _Call:
    cancelled = False

    def progress(self, done: float, total: float | None, message: str) -> None:
        return None


def _memory_mb() -> float:
    """The most this process ever held."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024


def _timed(workspace: Workspace, arguments: dict[str, object]) -> tuple[float, int]:
    # Another budget each time would be another page, not another answer: the kept answers are dropped instead.
    workspace.forget_answers()
    began = time.perf_counter()
    answer = workspace.call("search", arguments, _Call())
    total = answer.structured.get("total", -1)
    return time.perf_counter() - began, total if isinstance(total, int) else -1


def _found_after(workspace: Workspace, word: str) -> float:
    began = time.perf_counter()
    while _timed(workspace, {"query": word})[1] < 1:
        pass
    return time.perf_counter() - began


def main() -> None:
    root, data = Path(sys.argv[1]), Path(sys.argv[2])
    queries = json.load(sys.stdin)
    began = time.perf_counter()
    workspace = open_workspace(root, data)
    workspace.index.wait_settled(600)
    result: dict[str, object] = {
        "first_index_s": time.perf_counter() - began,
        "files": workspace.index.status()["files"],
    }
    result["index_mb"] = int(str(workspace.index.status()["index_bytes"])) / 2**20
    result["queries"] = {}
    for name, (arguments, runs) in queries.items():
        times = [_timed(workspace, arguments) for _ in range(runs)]
        result["queries"][name] = {"times": [took for took, _ in times], "total": times[-1][1]}  # type: ignore[index]
    result["memory_mb"] = _memory_mb()
    (root / "pkg0/mod0/saved.py").write_text("just_saved_word = 1\n")
    result["one_save_s"] = _found_after(workspace, "just_saved_word")
    changed = 0
    for base, _, names in os.walk(root):
        for name in names:
            if changed < 10_000:
                with open(os.path.join(base, name), "ab") as out:
                    out.write(b"\nchanged_in_bulk = 1\n")
                changed += 1
    began = time.perf_counter()
    total = _timed(workspace, {"query": "changed_in_bulk"})[1]
    result["bulk"] = {"changed": changed, "found": total, "took_s": time.perf_counter() - began}
    workspace.close()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
