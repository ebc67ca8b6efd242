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
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_LONGEST_NAME_BYTES = 200  # file systems allow 255, and the clone's neighbours need a few more
_OTHER_SCHEMES = frozenset({"data", "file", "ftp", "javascript", "mailto"})  # not hosts, as in `file:/etc`
_DEFAULT_PORTS = {"https": 443, "http": 80, "ssh": 22}
_WHAT_TO_WRITE = "use https://HOST/PATH.git or git@HOST:PATH.git"
_NO_CREDENTIALS = "the URL holds a user name or a password: leave them out and use `codehub git-auth add HOST`"
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
    """Parse the address of a remote repository. Otherwise raises Invalid, with what to write instead.

    No message repeats the text: it may hold a password, and messages end up in logs.
    """
    if len(text) > _LONGEST_URL:
        raise Invalid(f"a repository's URL has at most {_LONGEST_URL} characters")
    if not text or text != text.strip() or any(ord(c) < 32 or ord(c) == 127 for c in text) or " " in text:
        raise Invalid("a repository's URL has no spaces or control characters")
    if text.startswith("-"):
        raise Invalid("a repository's URL does not begin with '-'")
    check_no_credentials(text)
    if "://" in text:
        return _parse_full(text)
    short = _SHORT_SSH.fullmatch(text)
    host = "" if short is None else short["host"].lower()
    if short is None or "::" in text or (short["user"] is None and host in _OTHER_SCHEMES):
        raise Invalid(f"this is not a repository's URL: {_WHAT_TO_WRITE}")
    if host in _DEFAULT_PORTS:
        raise Invalid(f"{host}: is followed by two slashes: {_WHAT_TO_WRITE}")
    return RepositoryUrl("ssh", host, text, _name_of(short["path"]))


def check_no_credentials(text: str) -> None:
    """Raise Invalid if the text, which need not be a URL yet, holds a user name (other than for SSH) or a password."""
    scheme, separator, rest = text.partition("://")
    if separator:
        userinfo = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[0]
        holds_one = ":" in userinfo or (userinfo and scheme.lower() != "ssh") or "@" in scheme
    else:
        holds_one = "@" in text.partition(":")[2]  # alice:password@host/path
    if holds_one:
        raise Invalid(_NO_CREDENTIALS)


def _parse_full(text: str) -> RepositoryUrl:
    scheme, _, rest = text.partition("://")
    if not _SCHEME.fullmatch(scheme):
        raise Invalid(f"this is not a repository's URL: {_WHAT_TO_WRITE}")
    text = f"{scheme.lower()}://{rest}"  # git knows only that spelling
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise Invalid(f"this is not a URL: {error}") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise Invalid(f"{parts.scheme}:// is not supported for repositories: use https:// or ssh://")
    host = (parts.hostname or "").lower()
    bare = f"[{host}]" if ":" in host else host
    if not _HOST.fullmatch(bare):
        raise Invalid(f"this URL names no host: {_WHAT_TO_WRITE}")
    if parts.username is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", parts.username):
        raise Invalid("the URL's user name is not one for SSH")
    if parts.query or parts.fragment:
        raise Invalid("a repository's URL has no '?' and no '#'")
    authority = canonical_host(parts.scheme, bare if port is None else f"{bare}:{port}")
    return RepositoryUrl(parts.scheme, authority, text, _name_of(parts.path))


def canonical_host(scheme: str, host: str) -> str:
    """Return the host in lower case, with its port unless it is the scheme's default. Git asks for it as a URL has it."""
    return host.lower().removesuffix(f":{_DEFAULT_PORTS.get(scheme, '')}")


def _name_of(path: str) -> str:
    """Return the clone's folder: the last part of the path, as `git clone` would name it.

    It is an ordinary folder of the home: one named `.ssh` would configure the user's programs. Characters that a shell
    treats specially become dashes.
    """
    last = unquote(path.rstrip("/").removesuffix(".git").rstrip("/").rsplit("/", 1)[-1])
    if "/" in last or not all(c.isprintable() for c in last):
        raise Invalid("the URL's last part does not name a repository")
    name = "".join(c if c.isalnum() or c in "._-" or (ord(c) > 127 and not c.isspace()) else "-" for c in last)
    name = name.lstrip(".-").encode()[:_LONGEST_NAME_BYTES].decode(errors="ignore")
    if not name:
        raise Invalid("the URL's last part does not name a repository")
    return name


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
