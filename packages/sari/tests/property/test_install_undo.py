"""For any configuration: install adds exactly its entry, twice is once, and uninstall gives the exact bytes back."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from sari.install.change import install, plan_uninstall, uninstall
from sari.install.clients import CLIENTS, Client, Launch, Machine, Scope
from sari.install.receipts import Receipts

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LAUNCH = Launch("/opt/with space/sari", environment={"SARI_REGISTRY_FILE": "/r/ü.json"})
keys = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=8)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | keys
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)
servers = st.dictionaries(keys, st.dictionaries(keys, scalars, max_size=2), max_size=3)
documents = st.tuples(st.dictionaries(keys, values, max_size=3), st.none() | servers)
Document = tuple[dict[str, object], dict[str, dict[str, object]] | None]
layouts = st.sampled_from([None, 1, 2, 4, "\t"])
comments = st.sampled_from(["", "// a note, {\n", "/* , } */ "])


def _whole(document: Document, name: str) -> dict[str, object]:
    """The document with its section of servers. Another value of that name is refused, which other tests show."""
    rest, section = document
    others = {key: value for key, value in rest.items() if key != name}
    return others if section is None else {**others, name: section}


def _json(client: Client, document: Document, layout: int | str | None, comment: str) -> str:
    whole = _whole(document, client.section)
    text = json.dumps(whole, indent=layout, ensure_ascii=False)
    if client.dialect is not None and client.dialect.comments:
        text = comment + text.replace("{", "{" + comment, 1)
    return text


def _toml(document: Document) -> str:
    def plain(value: object) -> Any:
        if isinstance(value, dict):
            return {key or "empty": plain(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [plain(inner) for inner in value]
        return 0 if value is None else value

    return tomlkit.dumps(plain(_whole(document, "mcp_servers")))


@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
@settings(max_examples=30)
@given(
    document=documents, layout=layouts, comment=comments, crlf=st.booleans(), mark=st.booleans(), later=st.booleans()
)
def test_uninstall_gives_back_the_exact_bytes(
    client: Client,
    document: Document,
    layout: int | str | None,
    comment: str,
    crlf: bool,
    mark: bool,
    later: bool,
) -> None:
    text = _toml(document) if client.dialect is None else _json(client, document, layout, comment)
    if crlf:
        text = text.replace("\n", "\r\n")
    before = (b"\xef\xbb\xbf" if mark else b"") + text.encode()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "configuration"
        path.write_bytes(before)
        receipts = Receipts(Path(folder) / "receipts")
        meant = client.read(text)
        install(client, path, LAUNCH, receipts, NOW)
        there = path.read_bytes()
        section = meant.get(client.section) or {}
        assert isinstance(section, dict)
        assert client.read(there.decode("utf-8-sig")) == {
            **meant,
            client.section: {**section, "sari": {**section.get("sari", {}), **client.entry(LAUNCH)}},
        }
        assert not install(client, path, LAUNCH, receipts, NOW).needed
        install(client, path, Launch("/new/sari"), receipts, NOW)
        own = b""
        if later:
            own = b"\n# later\n" if client.dialect is None else b"\n \n"
            path.write_bytes(path.read_bytes() + own)
        assert plan_uninstall(client, path, receipts).needed
        uninstall(client, path, receipts, NOW)
        assert path.read_bytes() == before + own, "what the client or a person wrote since stays, to the byte"
        assert not uninstall(client, path, receipts, NOW).needed


@st.composite
def scribbled(draw: st.DrawFn, value: object, comments: bool, trailing_commas: bool) -> str:
    """JSON as people leave it: any white space, and where the client reads them, comments and a last comma."""
    gaps = st.sampled_from(["", "", " ", "\n", "\n  ", "\t", "\r\n"])
    gap = gaps | st.sampled_from([" // a, }\n", "/* { */", "/*\n*/ "]) if comments else gaps

    def written(value: object) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        if isinstance(value, dict):
            ends = "{}"
            items = [f"{json.dumps(k)}{draw(gap)}:{draw(gap)}{written(v)}" for k, v in value.items()]
        else:
            ends, items = "[]", [written(item) for item in value]
        body = ",".join(f"{draw(gap)}{item}{draw(gap)}" for item in items)
        last = "," if items and trailing_commas and draw(st.booleans()) else ""
        return f"{ends[0]}{body}{last}{draw(gap)}{ends[1]}"

    return draw(gap) + written(value) + draw(gap)


@pytest.mark.parametrize(
    "client", [one for one in CLIENTS.values() if one.dialect is not None], ids=lambda one: one.name
)
@settings(max_examples=40)
@given(document=documents, data=st.data())
def test_however_a_file_is_scribbled_only_the_entry_comes_and_goes(
    client: Client, document: Document, data: st.DataObject
) -> None:
    """By its structure alone, as when the receipt is lost: everything else says what it said, comments included."""
    rest, section = document
    whole = {**rest, **({client.section: section} if section is not None else {})}
    assert client.dialect is not None
    text = data.draw(scribbled(whole, client.dialect.comments, client.dialect.trailing_commas))
    assert client.read(text) == whole
    there = client.put(text, LAUNCH)
    servers = {**(section or {}), "sari": {**(section or {}).get("sari", {}), **client.entry(LAUNCH)}}
    assert client.read(there) == {**whole, client.section: servers}
    assert client.put(there, LAUNCH) == there
    assert _comments(there) == _comments(text)
    gone = client.drop(there)
    others = {name: entry for name, entry in (section or {}).items() if name != "sari"}
    assert client.read(gone) == {**whole, client.section: others}
    assert _comments(gone) == _comments(text), "no comment is lost"


def _comments(text: str) -> tuple[int, int]:
    """How many of each kind that `scribbled` draws. Not just by their two characters: `*//*` is no third one."""
    return text.count("// a, }"), text.count("/*")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gemini", '{\n"":null/* { */}/* { */'),  # the first comment ends before the brace
        ("cursor", '{"mcpServers":{"":{} // a, }\n,}}'),  # a comment before the last comma
    ],
)
def test_a_comment_beside_the_place_of_the_entry_stays(name: str, text: str) -> None:
    client = CLIENTS[name]
    there = client.put(text, LAUNCH)
    assert _comments(there) == _comments(text)
    gone = client.drop(there)
    assert _comments(gone) == _comments(text)
    assert client.read(gone) == {"mcpServers": {}, **client.read(text)}


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("client", CLIENTS.values(), ids=lambda client: client.name)
def test_a_file_that_installing_made_is_gone_again_with_its_folders(
    client: Client, scope: Scope, tmp_path: Path
) -> None:
    home, project = tmp_path / "ho me", tmp_path / "プロジェクト"
    home.mkdir()
    project.mkdir()
    path = client.file(scope, Machine(home, platform="linux"), project)
    receipts = Receipts(tmp_path / "receipts")
    change = install(client, path, LAUNCH, receipts, NOW)
    assert change.shown().startswith("--- /dev/null\n")
    assert client.configured(path.read_text()) == client.entry(LAUNCH)
    uninstall(client, path, receipts, NOW)
    assert list(home.iterdir()) == []
    assert list(project.iterdir()) == []
