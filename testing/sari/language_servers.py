"""Repositories for language servers: small ones in four languages, and what would run programs from them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

from sari.tools.workspace import Workspace

Opener = Callable[[Path], Workspace]

PYTHON = {
    "a.py": "class A:\n    def close(self):\n        pass\n\n\nclass B:\n    def close(self):\n        pass\n",
    "b.py": "from a import A, B\n\n\ndef f(x: A, y: B):\n    x.close()\n    y.close()\n",
}
TYPESCRIPT = {
    "tsconfig.json": '{"compilerOptions": {"plugins": [{"name": "evil"}]}}',
    "a.ts": "export class A {\n  close(): void {}\n}\nexport class B {\n  close(): void {}\n}\n",
    "b.ts": "import { A, B } from './a';\n\nexport function f(x: A, y: B) {\n  x.close();\n  y.close();\n}\n",
}
GO = {
    "go.mod": "module m\n\ngo 1.19\n",
    "a.go": "package m\n\ntype A struct{}\n\nfunc (a A) Close() {}\n\ntype B struct{}\n\nfunc (b B) Close() {}\n",
    "b.go": "package m\n\nfunc F(x A, y B) {\n\tx.Close()\n\ty.Close()\n}\n",
}
CPP = {
    "a.h": "struct A {\n  void close();\n};\nstruct B {\n  void close();\n};\n",
    "a.cpp": '#include "a.h"\nvoid A::close() {}\nvoid B::close() {}\n',
    "b.cpp": '#include "a.h"\nvoid f(A x, B y) {\n  x.close();\n  y.close();\n}\n',
}


def make_tree(root: Path, files: dict[str, str]) -> Path:
    """Write the files, and for C++ the commands that compile them."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    if "a.cpp" in files:
        commands = [f'{{"directory": "{root}", "file": "{f}", "command": "c++ -c {f}"}}' for f in ("a.cpp", "b.cpp")]
        (root / "compile_commands.json").write_text(f"[{', '.join(commands)}]")
    return root


def make_hostile(root: Path, mark: Path) -> None:
    """Whatever a server or its tools could run or load from the workspace leaves a mark."""
    script = f"#!/bin/sh\necho $0 >> {mark}\n"
    node = f"require('fs').appendFileSync({str(mark)!r}, __filename + '\\n'); module.exports = () => ({{}});\n"
    python = f"open({str(mark)!r}, 'a').write(__file__ + '\\n')\n"
    programs = ["python", "python3", ".venv/bin/python", ".venv/bin/python3", "node", "go", "git", "cc", "c++", "gcc"]
    names = ["pyright-langserver", "typescript-language-server", "gopls", "clangd", "tsserver"]
    programs += [f"node_modules/.bin/{name}" for name in names] + names
    for program in programs:
        path = root / "bin" / program if "/" not in program else root / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)
    for module in ("json", "os", "sys", "sitecustomize", "usercustomize"):
        (root / f"{module}.py").write_text(python)
    for module in ("typescript/lib/tsserver.js", "typescript/lib/typescript.js", "evil/index.js", "pyright/index.js"):
        path = root / "node_modules" / module
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(node)
    (root / "node_modules/typescript/package.json").write_text('{"name": "typescript", "version": "5.9.3"}')
    (root / "pyrightconfig.json").write_text('{"venvPath": ".", "venv": ".venv"}')
    (root / ".clangd").write_text(f"CompileFlags:\n  Compiler: {root}/bin/cc\n")
    if (root / "go.mod").exists():
        (root / "c.go").write_text('package m\n\n// #cgo CFLAGS: -fplugin=./evil.so\n// int f();\nimport "C"\n')
        (root / "go.env").write_text(f"GOFLAGS=-toolexec={root}/bin/cc\n")
    subprocess.run(["git", "init", "-q", "-b", "main", root], check=True)
    with open(root / ".git/config", "a") as file:
        file.write(f"[core]\n\tfsmonitor = {root}/bin/cc\n")
    if (root / "a.cpp").exists():
        load = "-Xclang -load -Xclang ./evil.so -fplugin=./evil.so"
        commands = [
            f'{{"directory": "{root}", "file": "{f}", "command": "{root}/bin/c++ {load} -c {f}"}}'
            for f in ("a.cpp", "b.cpp")
        ]
        (root / "compile_commands.json").write_text(f"[{', '.join(commands)}]")
        source = root.parent / "evil.c"
        source.write_text(
            "#include <stdio.h>\n__attribute__((constructor)) static void run(void)"
            f' {{ FILE *f = fopen("{mark}", "a"); fputs("evil.so\\n", f); fclose(f); }}\n'
        )
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", root / "evil.so", source], check=True)


def is_alive(pid: int) -> bool:
    """Say whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
