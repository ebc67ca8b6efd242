"""sari's index beside ripgrep and ripgrepx on 100,000 files: where the floors of design chapter 13 are."""

from __future__ import annotations

from bench import sari_index


def measure() -> list[sari_index.Row]:
    return sari_index.on_a_tree(100_000)
