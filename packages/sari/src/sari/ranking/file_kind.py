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


# Suffixes of programs in languages that are not parsed. Any other file is a setting, a picture or data.
_PROGRAM_SUFFIXES = (
    "ada adb ads asm astro awk bat bzl clj cljc cljs cls cmd coffee cr cu cuh cypher d dart el elm erb erl ex exs "
    "f f90 f95 fish fs fsi fsx gd glsl gradle graphql groovy haml hbs hcl heex hlsl hrl hs jinja jinja2 j2 jl "
    "jsonnet l lean less lisp lua m m4 metal ml mli mm mustache nim nix pas pl pm pp proto ps1 psm1 purs pxd pxi "
    "pyx r razor res rkt s sass scala scm scss sml sol sql sv svelte tcl tex tf thrift twig v vb vert vhd vhdl "
    "vim vue wat wgsl y zig zsh"
)
_PROGRAMS = frozenset(_PROGRAM_SUFFIXES.split())
# Settings of build tools that are written in the language of the project.
_TOOL_SETTINGS = re.compile(
    r"(?:^|/)(?:[\w.-]*\.(?:config|conf)|\.\w+rc|gruntfile|gulpfile|jakefile|noxfile|fabfile)\.(?:[cm]?[jt]s|py)$",
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
        if _DOCUMENT.search(path):
            return FileKind.DOCUMENT
        return FileKind.SOURCE if path.rpartition(".")[2].lower() in _PROGRAMS else FileKind.AUXILIARY
    if _TOOL_SETTINGS.search(path):
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
_STUBS = (".d.ts", ".d.mts", ".d.cts", ".pyi")
_DECLARATIONS = (".h", ".hh", ".hpp", ".hxx", ".mli", *_STUBS)


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


def is_stub(path: str) -> bool:
    """Whether a file contains the types of code that is written without them."""
    return path.endswith(_STUBS)
