"""The language servers that sari knows, and how each is started so that it runs no program that a repository names.

A repository can name programs in many places: a compiler wrapper, a build script, a plugin, a local copy of the
compiler. A server that can be prevented from running all of them is used wherever it is installed. One that cannot
(`needs_trust`) is used only in workspaces that the user trusts.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sari.registry import programs

_MEMORY_MB = 1536


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One language server."""

    name: str
    command: tuple[str, ...]
    # sari's name of a language → the protocol's.
    languages: Mapping[str, str]
    environment: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    # Without one of these files, the server knows only single files and would miss uses in others.
    project_files: tuple[str, ...] = ()
    needs_trust: bool = False
    # The server lists the project in the background and does not report when an answer is complete, so files that
    # contain the name are opened first.
    opens_uses: bool = False


_NODE = {"NODE_OPTIONS": f"--max-old-space-size={_MEMORY_MB}"}

SERVERS: tuple[ServerSpec, ...] = (
    ServerSpec(
        "pyright",
        ("pyright-langserver", "--stdio"),
        {"python": "python"},
        environment=_NODE,
        opens_uses=True,
        settings={
            "python": {
                # An interpreter would run in the workspace and import modules from it.
                "pythonPath": "/nonexistent/python",
                "analysis": {"diagnosticMode": "openFilesOnly", "autoSearchPaths": True, "typeCheckingMode": "off"},
            }
        },
    ),
    ServerSpec(
        "typescript-language-server",
        ("typescript-language-server", "--stdio"),
        {"javascript": "javascript", "typescript": "typescript", "tsx": "typescriptreact"},
        environment=_NODE,
        options={
            "plugins": [],
            "disableAutomaticTypingAcquisition": True,
            "maxTsServerMemory": _MEMORY_MB,
        },
        project_files=("tsconfig.json", "jsconfig.json"),
    ),
    ServerSpec(
        "gopls",
        ("gopls", "serve"),
        {"go": "go"},
        environment={
            # No other toolchain, no download, no C compiler, no version control, no driver, none of the user's
            # settings.
            "GOTOOLCHAIN": "local",
            "GOPROXY": "off",
            "GOENV": "off",
            "GOFLAGS": "-buildvcs=false",
            "GOPACKAGESDRIVER": "off",
            "GOVCS": "*:off",
            "CGO_ENABLED": "0",
            "GOMEMLIMIT": f"{_MEMORY_MB}MiB",
        },
        project_files=("go.mod", "go.work"),
    ),
    ServerSpec(
        "clangd",
        ("clangd", "--enable-config=false", "--clang-tidy=false", "--background-index", "--log=error", "-j=2"),
        {"c": "c", "cpp": "cpp"},
        project_files=("compile_commands.json",),
    ),
    ServerSpec(
        "rust-analyzer",
        ("rust-analyzer",),
        {"rust": "rust"},
        options={
            "cargo": {"buildScripts": {"enable": False}},
            "procMacro": {"enable": False},
            "checkOnSave": False,
        },
        project_files=("Cargo.toml",),
        # cargo runs the compiler and the wrapper that `.cargo/config.toml` and `rust-toolchain.toml` name.
        needs_trust=True,
    ),
    ServerSpec(
        "jdtls",
        ("jdtls",),
        {"java": "java"},
        project_files=("pom.xml", "build.gradle", "build.gradle.kts", ".classpath"),
        # It runs the project's Gradle or Maven.
        needs_trust=True,
    ),
)


def server_for(language: str) -> ServerSpec | None:
    """Return the server for a language."""
    return next((spec for spec in SERVERS if language in spec.languages), None)


def find_program(spec: ServerSpec, root: Path, environ: Mapping[str, str]) -> str | None:
    """Return the server's program, never one from inside the workspace."""
    return programs.find_program(spec.command[0], environ, [root])


def search_path(root: Path, environ: Mapping[str, str]) -> str:
    """Return `PATH` without relative entries and those inside a workspace (`node_modules/.bin` belongs to the
    repository), and with the folders where programs usually are.
    """
    return programs.program_path(environ, [root])


def project_folder(spec: ServerSpec, root: Path, path: str) -> Path | None:
    """Return the nearest folder above a file, within the root, from which the server knows the complete project."""
    if not spec.project_files:
        return root
    at = (root / path).parent
    while at == root or at.is_relative_to(root):
        for folder in (at, at / "build") if spec.name == "clangd" else (at,):
            if any((folder / name).is_file() for name in spec.project_files):
                return folder
        at = at.parent
    return None


def typescript_library(program: str) -> str | None:
    """Return the TypeScript installed with the server. The workspace's own copy would be the repository's code."""
    place = Path(os.path.realpath(program))
    for above in place.parents:
        for candidate in (above / "typescript/lib", above / "node_modules/typescript/lib"):
            if (candidate / "tsserver.js").is_file():
                return str(candidate)
    return None
