"""Classifies a file by its path: source, test, documentation and data, vendored and generated, and others. Pure."""

from __future__ import annotations

import re
import sys
from enum import Enum
from functools import lru_cache

from sari.languages import catalog


class FileKind(Enum):
    SOURCE = "source"
    TEST = "test"
    DOCUMENT = "document"
    RECORD = "record"
    AUXILIARY = "auxiliary"
    VENDORED = "vendored"


_VENDORED = re.compile(
    r"(?:^|/)(?:node_modules|vendor|vendored|third_party|third-party|site-packages|bower_components|dist|build|out|target"
    r"|generated|__generated__|\.yarn|Pods)/|^deps/"
    r"|\.min\.(?:js|css)$|[._-]generated\.|_pb2(?:_grpc)?\.pyi?$|\.pb\.go$|\.g\.(?:cs|dart)$|\.map$|\.snap$"
    r"|(?:^|/)(?:package-lock\.json|yarn\.lock|pnpm-lock\.yaml|poetry\.lock|uv\.lock|Cargo\.lock|go\.sum)$"
)
_TEST = re.compile(
    r"(?:^|/)(?:tests?|__tests__|specs?|testdata|testing|fixtures|e2e)/"
    r"|(?:^|/)test_[^/]*$|(?:^|/)(?:tests|conftest)\.py$|[._-](?:tests?|spec)\.[^/]+$|(?:Test|Tests|Spec)\.\w+$"
)
_DOCUMENT = re.compile(
    r"\.(?:md|mdx|rst|txt|adoc|html?|css|json|jsonl|ya?ml|toml|lock|svg|csv|tsv|po|pot|xml|ini|cfg|conf|ipynb|bib|tex"
    r"|properties|plist|pem|crt|log|pbxproj|xcscheme|xcworkspacedata|storyboard|xib|sln|csproj|fsproj|vbproj|vcxproj|props"
    r"|nuspec|podspec|cabal|nix|cmake)$"
    r"|(?:^|/)(?:docs?|docs_src|examples?|samples?|benchmarks?)/",
    re.IGNORECASE,
)
# Texts about the project as a whole.
_RECORD = re.compile(
    r"(?:^|/)(?:changes|changelog|history|news|releases?|upgrading|readme|licen[cs]e|authors|contributing|copying|notice)"
    r"[\w-]*(?:\.(?:md|rst|txt|adoc|html?))?$|(?:^|/)changelogs?/",
    re.IGNORECASE,
)


@lru_cache(maxsize=1 << 14)
def kind_of(path: str) -> FileKind:
    """Return the kind of a file."""
    if _VENDORED.search(path):
        return FileKind.VENDORED
    if _TEST.search(path):
        return FileKind.TEST
    if catalog.of_path(path) is None:
        if _RECORD.search(path):
            return FileKind.RECORD
        name = path.rpartition("/")[2]
        if "." not in name.removeprefix("."):
            return FileKind.AUXILIARY
    return FileKind.DOCUMENT if _DOCUMENT.search(path) else FileKind.SOURCE


# Platform names in paths, mapped to their `sys.platform`.
_PLATFORMS = {
    "win": "win32",
    "win32": "win32",
    "windows": "win32",
    "mingw": "win32",
    "darwin": "darwin",
    "macos": "darwin",
    "osx": "darwin",
    "ios": "darwin",
    "linux": "linux",
    "aix": "aix",
    "sunos": "sunos",
    "solaris": "sunos",
    "freebsd": "freebsd",
    "openbsd": "openbsd",
    "netbsd": "netbsd",
    "os390": "os390",
    "ibmi": "ibmi",
    "haiku": "haiku",
    "wasm": "wasi",
    "wasi": "wasi",
    "android": "android",
}
_NAME = re.compile(r"[a-z0-9]+")
_DECLARATIONS = (".h", ".hh", ".hpp", ".hxx", ".d.ts", ".pyi", ".mli")


@lru_cache(maxsize=1 << 14)
def foreign_platform(path: str, platform: str = sys.platform) -> str | None:
    """Return the platform that a file is for, according to its path, if it is not this one."""
    names: list[str] = _NAME.findall(path.lower())
    for name in names:
        of = _PLATFORMS.get(name)
        if of is not None and of != platform:
            return name
    return None


def only_declares(path: str) -> bool:
    """Whether a file only declares symbols that another one defines."""
    return path.endswith(_DECLARATIONS)
