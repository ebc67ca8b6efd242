"""Explains git's error messages so that users know what to do. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple


class Trouble(NamedTuple):
    """A problem and its explanation.

    `kind` is for programs: auth, missing, host, timeout, tls, ref, space, memory, broken, git, other.
    """

    kind: str
    message: str


_RULES: list[tuple[str, str, str]] = [
    (
        "space",
        r"No space left on device|Disk quota exceeded|Failure writing output to destination",
        "There is no room left for the clone. Delete files in the workspace, then try again.",
    ),
    (
        "ref",
        r"Remote branch .* not found|couldn't find remote ref|not our ref|unadvertised object",
        "The repository has no branch, tag or commit named “{ref}”. Check its name.",
    ),
    (
        "auth",
        r"^codehub: .* refused the credential\.",  # printed by our credential helper
        "{host} refused your credential. Replace it with `codehub git-auth add {host}` or on your account page.",
    ),
    (
        "auth",
        r"Authentication failed|could not read (?:Username|Password)|HTTP Basic: Access denied|returned error: 40[13]|"
        r"Permission denied \(publickey|Invalid username or (?:password|token)|terminal prompts disabled",
        "{host} refused access. If the repository is private, add a credential with `codehub git-auth add {host}` or on "
        "your account page{ssh}, and check that it may read this repository.",
    ),
    (
        "hostkey",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "{host} has another SSH host key than before. If that is expected, remove its line from ~/.ssh/known_hosts.",
    ),
    (
        "host",
        r"Could not resolve host|Name or service not known|Temporary failure in name resolution|"
        r"Could not resolve hostname",
        "There is no host named {host}. Check the URL.",
    ),
    (
        "memory",
        r"index-pack died of signal 9|unpack-objects died of signal 9|[Oo]ut of memory|cannot allocate memory|"
        r"Cannot allocate memory",
        "git had too little memory for this repository. Choose a template with more memory, or close other programs and "
        "try again.",
    ),
    (
        "timeout",
        r"Connection timed out|Operation timed out|Failed to connect to .* Timeout|timed out|Operation too slow",
        "{host} does not answer. Check the URL, or try again later.",
    ),
    (
        "broken",
        # What git says when a download that had begun ends: the same words as for a host that cannot be reached follow.
        r"RPC failed; (?!HTTP 404)|early EOF|unexpected disconnect|transfer closed|not closed cleanly|"
        r"invalid index-pack output|Connection to \S+ closed by remote host|Timeout, server \S+ not responding",
        "The connection to {host} broke off during the download. Try again.",
    ),
    (
        "host",
        r"Connection refused|Failed to connect|Couldn't connect to server|No route to host|Network is unreachable|"
        r"Prohibited|Permission denied$|Connection reset",
        "{host} cannot be reached from this workspace. Check the URL; a private network must be allowed by an "
        "administrator (CODEHUB_INSTANCE_NETWORKS).",
    ),
    (
        "tls",
        r"SSL certificate problem|server certificate verification failed|SSL: no alternative certificate",
        "The certificate of {host} is not trusted here. An administrator can add its authority with CODEHUB_GIT_CA_FILE.",
    ),
    (
        "missing",
        r"not valid: is this a git repository|does not appear to be a git repository|[Rr]epository .*not found|"
        r"not found|returned error: 404|Could not read from remote repository",
        "There is no repository at {url}, or your credential may not see it. Check the URL; for a private repository add a "
        "credential with `codehub git-auth add {host}`.",
    ),
]


# A token alone stands where a user name does; only SSH needs a user name.
_USER = re.compile(r"(https?)://[^/@\s']{0,2000}@|://[^/@\s']{0,1000}:[^/@\s']{0,1000}@")


def host_of(url: str) -> str:
    if "://" in url:
        return url.split("://", 1)[1].split("/", 1)[0].rpartition("@")[2]
    return url.split(":", 1)[0].rpartition("@")[2]


def without_passwords(text: str) -> str:
    """Return the text without user names and passwords in URLs: a repository may name submodules with them."""
    return _USER.sub(lambda found: f"{found[1] or ''}://", text)


def explain(output: str, url: str, ref: str) -> Trouble:
    """Return the cause that git's (or ssh's) messages name. They are in English, because LC_ALL is C."""
    output, url = without_passwords(output), without_passwords(url)
    ssh = "" if url.startswith("http") else ", or your SSH key to your account at that host"
    for kind, pattern, message in _RULES:
        if re.search(pattern, output, re.MULTILINE):
            return Trouble(kind, message.format(url=url, host=host_of(url), ref=ref, ssh=ssh))
    lines = [line.strip() for line in output.replace("\r", "\n").splitlines() if line.strip()]
    last = next(
        (line for line in reversed(lines) if line.startswith(("fatal:", "error:"))), lines[-1] if lines else ""
    )
    return Trouble("other", f"git failed: {last[:300]}" if last else "git failed without saying why.")


_SUBMODULE = re.compile(r"clone of '([^']+)' into submodule path")


def explain_submodule(output: str, url: str) -> str:
    """Return why submodules are missing. Each may be on another host than `url`."""
    named = _SUBMODULE.findall(without_passwords(output))
    trouble = explain(output, named[-1] if named else url, "")
    why = trouble.message
    if trouble.kind == "ref":
        why = "A submodule does not have the commit that the repository names."
    elif named and re.search(r"transport '[^']*' not allowed", output):
        why = f"{named[-1]} is not fetched: submodules come over HTTPS, HTTP or SSH."
    return f"Submodules were not fetched. {why}"


_PROGRESS = re.compile(
    r"(Receiving objects|Resolving deltas|Updating files|Filtering content|Counting objects|Compressing objects):\s+"
    r"(\d+)% \((\d+)/(\d+)\)(?:, ([\d.]+) (bytes|KiB|MiB|GiB))?"
)
_UNITS = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


class Progress(NamedTuple):
    step: str
    percent: int
    received: int  # bytes; 0 if git does not report it


def last_progress(output: str) -> Progress | None:
    """Return the latest progress in git's output."""
    matches = list(_PROGRESS.finditer(output))
    if not matches:
        return None
    found = matches[-1]
    received = int(float(found[5]) * _UNITS[found[6]]) if found[5] else 0
    return Progress(found[1], int(found[2]), received)
