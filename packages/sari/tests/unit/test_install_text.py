"""Putting an entry into a client's text: what is there stays as it is, down to the comment."""

from __future__ import annotations

import json
import tomllib

import pytest

from sari.install import jsontext, tomltext
from sari.install.clients import CLIENTS, Launch
from sari.install.errors import Unreadable
from sari.install.jsonscan import Dialect

LOOSE = Dialect(comments=True, trailing_commas=True)
STRICT = Dialect()
PATH = ("mcpServers", "sari")
ENTRY: dict[str, object] = {"command": "/opt/sari", "args": ["mcp"]}


def test_an_entry_goes_after_the_last_and_comments_stay() -> None:
    text = """{
    // my servers
    "mcpServers": {
        "other": {"command": "x"} // keep me
        /* and me */
    },
    "theme": "dark"
}
"""
    assert (
        jsontext.put(text, PATH, ENTRY, LOOSE)
        == """{
    // my servers
    "mcpServers": {
        "other": {"command": "x"}, // keep me
        "sari": {
            "command": "/opt/sari",
            "args": [
                "mcp"
            ]
        }
        /* and me */
    },
    "theme": "dark"
}
"""
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "{ }\n",
        "{\n}\n",
        '{"a":1}',
        '{"mcpServers":{}}',
        '{"mcpServers":{"o":{"command":"x"}},"z":[1,2]}',
        '{\n\t"mcpServers": {\n\t\t"o": {}\n\t}\n}',
        '{\r\n  "a": 1,\r\n  "mcpServers": {\r\n    "o": {}\r\n  }\r\n}\r\n',
        '{\n  "mcpServers": {\n    "o": {},\n  },\n}\n',
        "{ // only a comment\n}",
        '{ /* a */ "mcpServers": { /* b */ } /* c */ }',
        '{\n  "mcpServers": {\n    "o": {}, // trailing\n  }\n}\n',
    ],
)
def test_put_adds_only_the_entry_and_drop_takes_only_it(text: str) -> None:
    before = jsontext.read(text, LOOSE)
    there = jsontext.put(text, PATH, ENTRY, LOOSE)
    servers = {**before.get("mcpServers", {}), "sari": ENTRY}  # type: ignore[dict-item]
    assert jsontext.read(there, LOOSE) == {**before, "mcpServers": servers}
    assert jsontext.put(there, PATH, ENTRY, LOOSE) == there
    assert ("\r\n" in there) == ("\r\n" in text)
    gone = jsontext.read(jsontext.drop(there, PATH, LOOSE), LOOSE)
    assert gone == {**before, "mcpServers": before.get("mcpServers", {})}


def test_an_entry_that_is_there_keeps_its_own_keys_and_its_place() -> None:
    text = '{"mcpServers": {"sari": {"command": "old", "disabled": false, "env": {"A": "1"}}, "z": {}}}'
    there = jsontext.put(text, PATH, {**ENTRY, "env": {"B": "2"}}, STRICT)
    entry = json.loads(there)["mcpServers"]["sari"]
    assert entry == {"command": "/opt/sari", "disabled": False, "env": {"A": "1", "B": "2"}, "args": ["mcp"]}
    assert list(json.loads(there)["mcpServers"]) == ["sari", "z"]


@pytest.mark.parametrize(
    ("text", "line", "why"),
    [
        ('{\n  "a": 1\n  "b": 2\n}', 3, "comma"),
        ('{\n  "a": 1,\n}', 2, "comma after the last"),
        ("{\n // hello\n}", 2, "comment"),
        ('{"a": 1, "a": 2}', 1, "twice"),
        ('{\n"a": "x\n"}', 2, "string"),
        ("[1]", 1, "not an object"),
        ('{\n"mcpServers": [1]}', 2, "not an object"),
        ("{}\n{}", 2, "after the end"),
        ('{"a": ', 1, "too early"),
        ("[" * 5000, 1, "nested"),
        ('{"a": NaN}', 1, "value was expected"),
    ],
)
def test_a_text_its_client_could_not_read_is_refused_with_its_line(text: str, line: int, why: str) -> None:
    with pytest.raises(Unreadable, match=why) as caught:
        jsontext.put(text, PATH, ENTRY, STRICT)
    assert caught.value.line == line


TOML_PATH = ("mcp_servers", "sari")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment",
        'model = "x" # why\n\n[mcp_servers.other]\ncommand = "y"\n\n[profiles.a]\nk = 1\n',
        '[mcp_servers]\nother = { command = "y" }\n[z]\n',
        'mcp_servers = { other = { command = "y" } } # inline\n',
        'mcp_servers.other.command = "y"\n',
        'a = 1\r\n[mcp_servers.other]\r\ncommand = "y"\r\n',
    ],
)
def test_toml_put_adds_only_the_entry_and_drop_takes_only_it(text: str) -> None:
    before = tomllib.loads(text)
    there = tomltext.put(text, TOML_PATH, ENTRY)
    assert tomllib.loads(there) == {**before, "mcp_servers": {**before.get("mcp_servers", {}), "sari": ENTRY}}
    assert tomltext.put(there, TOML_PATH, ENTRY) == there
    assert all(line.strip() in there for line in text.splitlines() if "#" in line and "inline" not in line)
    gone = tomllib.loads(tomltext.drop(there, TOML_PATH))
    assert {k: v for k, v in gone.items() if v != {}} == {k: v for k, v in before.items() if v != {}}


def test_toml_entry_that_is_there_keeps_its_own_keys_and_comments() -> None:
    text = (
        'model = "x"\n\n[mcp_servers.sari] # mine\ncommand = "old"\nenabled = true # yes\n\n'
        '[mcp_servers.sari.env]\nA = "1"\n\n[tui]\nk = 1\n'
    )
    there = tomltext.put(text, TOML_PATH, {**ENTRY, "env": {"B": "2"}})
    assert tomllib.loads(there)["mcp_servers"]["sari"] == {
        "command": "/opt/sari",
        "enabled": True,
        "args": ["mcp"],
        "env": {"A": "1", "B": "2"},
    }
    assert "# mine" in there
    assert "enabled = true # yes" in there
    assert there.endswith("[tui]\nk = 1\n")


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\nb = \n", 2), ("mcp_servers = 3", 1), ('x = 1\n[mcp_servers]\nsari = "no"\n', 3), ("a = 1\na = 2\n", 2)],
)
def test_a_toml_text_that_is_broken_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(Unreadable) as caught:
        tomltext.put(text, TOML_PATH, ENTRY)
    assert caught.value.line == line


def test_a_windows_path_and_other_alphabets_are_quoted_right() -> None:
    command = 'C:\\Users\\Jörg "x"\\사리\\sari.exe'
    entry: dict[str, object] = {"command": command, "args": ["mcp"]}
    assert tomllib.loads(tomltext.put("", TOML_PATH, entry))["mcp_servers"]["sari"]["command"] == command
    assert json.loads(jsontext.put("", PATH, entry, STRICT))["mcpServers"]["sari"]["command"] == command


@pytest.mark.parametrize("name", ["codex", "gemini", "claude", "cursor", "vscode"])
def test_installing_switches_sari_on(name: str) -> None:
    client = CLIENTS[name]
    launch = Launch("/bin/sari")
    for key, off in (("enabled", False), ("disabled", True)):
        switched = (
            tomltext.put("", client.path, {"command": "old", key: off})
            if client.dialect is None
            else jsontext.put("{}", client.path, {"command": "old", key: off}, client.dialect)
        )
        assert client.configured(client.put(switched, launch)) == client.entry(launch)
