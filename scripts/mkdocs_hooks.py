"""Hooks of the documentation site: shows the repository's root pages on it, and makes links that leave docs/ work.

The sources link to each other as files of the repository, which is what a code host shows. The site has docs/ as its root,
so a link that leaves it is mapped to a copy below `repository/`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_REPOSITORY = Path(__file__).resolve().parent.parent
_COPIES = PurePosixPath("repository")
_ROOT_PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "DEPENDENCIES.md", "SECURITY.md")
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
# What a page loads; a link that a reader follows is not among it.
_LOADED = re.compile(r"<(?:script|img|iframe|link(?=[^>]+stylesheet))[^>]+(?:src|href)=\"?https?://[^>]*>")
# Drawn by code hosts, in a browser only by a script from another host. Tables on the page say the same.
_DIAGRAM = re.compile(r"^```mermaid\n.*?^```\n", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name in _ROOT_PAGES:
        files.append(File.generated(config, str(_COPIES / name), abs_src_path=str(_REPOSITORY / name)))
    docs = Path(config.docs_dir)
    for page in [*docs.rglob("*.md"), *(_REPOSITORY / name for name in _ROOT_PAGES)]:
        for target in _linked_files(page, docs):
            where = str(_COPIES / target.relative_to(_REPOSITORY).as_posix())
            if files.get_file_from_path(where) is None:
                files.append(File.generated(config, where, abs_src_path=str(target)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    docs = Path(config.docs_dir)
    shown_at = PurePosixPath(page.file.src_uri)
    source = _REPOSITORY / shown_at.relative_to(_COPIES) if shown_at.is_relative_to(_COPIES) else docs / shown_at

    def mapped(match: re.Match[str]) -> str:
        target = _resolve(source, match[2])
        if target is None:
            return match[0]
        return f"{match[1]}{_on_site(target, shown_at, docs)}{_fragment(match[2])}{match[3]}"

    parts = _CODE.split(_DIAGRAM.sub("", markdown))
    return "".join(part if at % 2 else _LINK.sub(mapped, part) for at, part in enumerate(parts))


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    foreign = _LOADED.search(output)
    if foreign is not None:
        raise PluginError(f"{page.file.src_uri} loads something from another host: {foreign[0]}")
    return output


def _resolve(source: Path, link: str) -> Path | None:
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    return (source.parent / parts.path).resolve()


def _fragment(link: str) -> str:
    fragment = urlsplit(link).fragment
    return f"#{fragment}" if fragment else ""


def _on_site(target: Path, shown_at: PurePosixPath, docs: Path) -> str:
    inside = target.relative_to(docs) if target.is_relative_to(docs) else _COPIES / target.relative_to(_REPOSITORY)
    return Path(os.path.relpath(inside, shown_at.parent)).as_posix()


def _linked_files(page: Path, docs: Path) -> list[Path]:
    text = _CODE.sub("", page.read_text(encoding="utf-8"))
    targets = [_resolve(page, match[2]) for match in _LINK.finditer(text)]
    return [
        target
        for target in targets
        if target is not None and target.is_file() and not target.is_relative_to(docs) and target.suffix != ".md"
    ]
