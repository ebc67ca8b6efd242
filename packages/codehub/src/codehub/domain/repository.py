"""Git repositories: accepted addresses, the name of the clone, and the host to authenticate to.

Pure. `git` accepts far more than is safe here: local paths and `file://` would read the host, `ext::` runs a command, and a
leading `-` is an option. Addresses are therefore parsed, and only HTTPS, HTTP, SSH and its short form are accepted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from codehub.domain.errors import Invalid

_LONGEST_URL = 2048
_LONGEST_REF = 255
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]")
_SHORT_SSH = re.compile(
    r"(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*):(?P<path>[^:].*)"
)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
# What git-check-ref-format(1) forbids anywhere in a name. Control characters are checked separately.
_REF_FORBIDDEN = ("..", "@{", "//", "\\", " ", "~", "^", ":", "?", "*", "[")


@dataclass(frozen=True, slots=True)
class RepositoryUrl:
    """An address that may be passed to git. `host` is lower case, with its port unless it is the scheme's default."""

    scheme: str
    host: str
    url: str
    name: str

    @property
    def uses_ssh(self) -> bool:
        return self.scheme == "ssh"


@dataclass(frozen=True, slots=True)
class RepositorySource:
    """The repository of a workspace.

    `ref` is a branch, a tag or a commit, empty for the default branch. `path` is the folder inside the clone that the IDE
    opens.
    """

    repository: RepositoryUrl
    ref: str = ""
    path: str = ""

    @property
    def folder(self) -> str:
        """The folder that the IDE opens, relative to the home."""
        return f"{self.repository.name}/{self.path}" if self.path else self.repository.name


def parse_source(url: str, ref: str = "", path: str = "") -> RepositorySource:
    return RepositorySource(parse_url(url), _checked_ref(ref), _checked_path(path))


def parse_url(text: str) -> RepositoryUrl:
    """Parse the address of a remote repository. Otherwise raises Invalid, with what to write instead."""
    if len(text) > _LONGEST_URL:
        raise Invalid(f"a repository's URL has at most {_LONGEST_URL} characters")
    if not text or text != text.strip() or any(ord(c) < 32 or ord(c) == 127 for c in text) or " " in text:
        raise Invalid("a repository's URL has no spaces or control characters")
    if text.startswith("-"):
        raise Invalid("a repository's URL does not begin with '-'")
    if "://" in text:
        return _parse_full(text)
    short = _SHORT_SSH.fullmatch(text)
    if short is None or "::" in text:
        raise Invalid(f"{text!r} is not a repository's URL: use https://HOST/PATH.git or git@HOST:PATH.git")
    host = short["host"].lower()
    return RepositoryUrl("ssh", host, text, _name_of(short["path"]))


def _parse_full(text: str) -> RepositoryUrl:
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Invalid(f"{text!r} is not a URL: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise Invalid(f"{parts.scheme}:// is not supported for repositories: use https:// or ssh://")
    host = (parts.hostname or "").lower()
    bare = f"[{host}]" if ":" in host else host
    if not _HOST.fullmatch(bare):
        raise Invalid(f"{text!r} names no host")
    if parts.password is not None or (parts.username and parts.scheme != "ssh"):
        raise Invalid("the URL holds a user name or a password: leave them out and use `codehub git-auth add HOST`")
    if parts.username is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", parts.username):
        raise Invalid(f"{parts.username!r} is not a user name for SSH")
    if parts.query or parts.fragment:
        raise Invalid("a repository's URL has no '?' and no '#'")
    authority = bare if port in (None, _DEFAULT_PORTS[parts.scheme]) else f"{bare}:{port}"
    return RepositoryUrl(parts.scheme, authority, text, _name_of(parts.path))


def _name_of(path: str) -> str:
    """Return the clone's folder: the last part of the path, named as `git clone` would."""
    last = unquote(path.rstrip("/").removesuffix(".git").rstrip("/").rsplit("/", 1)[-1])
    if not _NAME.fullmatch(last) or last == ".git":
        raise Invalid("the URL's last part does not name a repository")
    return last


def _checked_ref(ref: str) -> str:
    if not ref:
        return ""
    valid = (
        len(ref) <= _LONGEST_REF
        and not any(bad in ref for bad in _REF_FORBIDDEN)
        and all(ord(c) > 32 and ord(c) != 127 for c in ref)
        and ref[0] not in "-/."
        and not ref.endswith(("/", ".", ".lock"))
        and "/." not in ref
        and ref != "@"
    )
    if not valid:
        raise Invalid(f"{ref!r} is not the name of a branch, a tag or a commit")
    return ref


def _checked_path(path: str) -> str:
    """Raise Invalid if the path leaves the clone."""
    if not path:
        return ""
    parts = path.strip("/").split("/")
    if path.startswith("/") or any(part in ("", ".", "..", ".git") or not part.isprintable() for part in parts):
        raise Invalid(f"{path!r} is not a folder inside the repository")
    return "/".join(parts)
