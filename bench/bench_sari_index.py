"""sari's index beside ripgrep, ripgrepx and its predecessor, on 1,000 and 10,000 files."""

from __future__ import annotations

from bench import sari_index


def measure() -> list[sari_index.Row]:
    return [*sari_index.on_a_tree(1_000), *sari_index.on_a_tree(10_000), *sari_index.predecessor()]
