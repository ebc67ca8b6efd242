"""The weights of ranked search: tuned on some repositories, validated on others (`python -m bench sari_ranked`)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """BM25F's weight of each field, and the factors applied after it."""

    k1: float = 1.2
    body: float = 0.6
    b_body: float = 0.75
    defs: float = 1.5
    b_defs: float = 0.4
    path: float = 2.0
    name: float = 4.0
    messages: float = 1.0
    b_messages: float = 0.8
    # Two neighbouring words of the question written as one.
    joined: float = 1.0
    # How much of the file's name the question contains.
    file_name: float = 3.0
    # The best place within the file.
    chunk: float = 1.0
    # A definition that the question names exactly as it is written.
    exact_name: float = 4.0
    # The files that commits with a similar message changed.
    similar_commits: float = 0.75
    # A file in the folder or module that the question begins with (`printer: …`, `fix(router): …`).
    scope: float = 0.33
    # A word that the question spells as in code and the file contains, and one that the file defines.
    identifier: float = 0.6
    defined_identifier: float = 0.8
    # A file that the question mentions.
    mentioned: float = 0.3
    # A file of the same name as a test that the question found.
    tested: float = 0.5
    coverage: float = 0.1
    activity: float = 0.04
    # Without a history: a long file is changed more often than a short one.
    length: float = 0.12
    tests: float = 0.35
    # Tests, if the question mentions tests.
    wanted_tests: float = 0.7
    documents: float = 0.35
    # A changelog, a licence, a readme: they contain words of everything.
    records: float = 0.2
    # A file that is neither code by its name nor a document: a makefile, a script without a suffix.
    auxiliary: float = 0.5
    vendored: float = 0.3
    # A header or a stub.
    declarations: float = 0.8
    # A stub (`.d.ts`, `.pyi`), if the question is about types.
    wanted_types: float = 1.2
    foreign_platform: float = 0.8

    def field(self, name: str) -> float:
        match name:
            case "body":
                return self.body
            case "defs":
                return self.defs
            case "path":
                return self.path
        return self.name


DEFAULT = Weights()
