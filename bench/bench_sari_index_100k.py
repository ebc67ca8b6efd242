"""sari's index beside ripgrep and ripgrepx on 100,000 files: the size that the goals in docs/benchmarks.md are for."""

from __future__ import annotations

from bench import sari_index


def measure() -> list[sari_index.Row]:
    return sari_index.on_a_tree(100_000)
