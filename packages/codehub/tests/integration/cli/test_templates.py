"""`codehub templates` and workspaces made from them, by the real command."""

from __future__ import annotations

import json
from pathlib import Path

from .conftest import PASSWORD, Command

WEB = """# The team's web service.
[templates.web]
description = "A web service"
env = {DEBUG = "{parameters.debug}"}
[templates.web.parameters.workers]
type = "number"
min = 1
max = 8
default = 2
[templates.web.parameters.debug]
type = "switch"
default = false
"""


async def test_a_template_is_pushed_previewed_used_updated_and_archived(signed_in: Command, tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    file.write_text(WEB)
    assert "web: fine" in await signed_in.ok("templates", "push", "--check", str(file))
    assert "web: pushed, version 1" in await signed_in.ok("templates", "push", str(file))
    assert "web: unchanged, version 1" in await signed_in.ok("templates", "push", "-", stdin=WEB)
    assert "workers, debug" in await signed_in.ok("templates", "ls")
    assert await signed_in.ok("templates", "show", "web", "--source") == WEB
    shown = await signed_in.ok("templates", "show", "web")
    assert "from 1 to 8" in shown
    assert "DEBUG=true" in await signed_in.ok("templates", "preview", "web", "--param", "debug=yes")
    assert "DEBUG=false" in await signed_in.ok("templates", "preview", str(file))
    both = tmp_path / "both.toml"
    both.write_text(WEB + '[templates.plain]\ndescription = "Without questions"\n')
    assert "DEBUG=true" in await signed_in.ok("templates", "preview", str(both), "--param", "debug=yes")
    unknown = await signed_in("templates", "preview", str(both), "--param", "debgu=yes")
    assert (unknown.code, "no such parameter" in unknown.err) == (2, True), unknown

    words = ("ws", "create", "shop", "--no-start", "--template", "web", "--param", "workers=4", "--json")
    made = json.loads(await signed_in.ok(*words))
    assert made["template"]["version"] == 1
    file.write_text(WEB.replace("[templates.web]", '[templates.web]\nsize = {memory = "2G"}'))
    await signed_in.ok("templates", "push", str(file))
    assert '+size = {memory = "2G"}' in await signed_in.ok("templates", "show", "web", "--diff")
    assert "size: default → 2G memory" in await signed_in.ok("ws", "update-template", "shop", "--dry-run")
    assert "runs by version 2 from its next start on" in await signed_in.ok("ws", "update-template", "shop")
    assert "web, version 1, version 2 from the next start on" in await signed_in.ok("ws", "show", "shop")
    refused = await signed_in("templates", "archive", "web")
    assert (refused.code, "is in use (1)" in refused.err) == (6, True), refused


async def test_mistakes_are_reported_with_their_lines_and_exit_codes(signed_in: Command, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(WEB)
    await signed_in.ok("templates", "push", str(file))
    file.write_text(WEB + "\n[templates.bad]\ncolour = 1\nports = ['x']\n")
    for words, code, said in (
        (("templates", "push", str(file)), 2, "line 15: templates.bad.colour: unknown key"),
        (
            ("templates", "push", "--check", str(file)),
            2,
            "line 16: templates.bad.ports: must be a list of port numbers",
        ),
        (("templates", "push", str(tmp_path / "none.toml")), 2, "No such file"),
        (("templates", "show", "nothing"), 5, "there is no template 'nothing'"),
        (("templates", "preview", "web", "--param", "workers=9"), 2, "parameters.workers: must be at most 8"),
        (("ws", "create", "x", "--template", "web", "--param", "workers=many"), 2, "'many' is not a number"),
        (("ws", "create", "x", "--template", "web", "--param", "colour=red"), 2, "parameters.colour"),
        (("ws", "create", "x", "--template", "web", "--param", "debug"), 2, "write NAME=VALUE"),
        (("ws", "create", "x", "--param", "debug=true"), 2, "use --template"),
        (("ws", "create", "x", "--template", "nothing"), 2, "there is no template 'nothing'"),
    ):
        failed = await signed_in(*words)
        assert failed.code == code, (words, failed)
        assert said in failed.err, (words, failed)


async def test_another_administrators_version_is_replaced_only_on_purpose(signed_in: Command, tmp_path: Path) -> None:
    file = tmp_path / "web.toml"
    file.write_text(WEB)
    await signed_in.ok("templates", "push", str(file))
    admin = {"CODEHUB_PASSWORD": PASSWORD}
    await signed_in.ok(
        "admin", "users", "add", "eve", "--admin", "--password-stdin", stdin="eve-has-a-password\n", **admin
    )
    await signed_in.ok("login", "-u", "eve", "--password-stdin", stdin="eve-has-a-password\n")
    file.write_text(WEB + "# by eve\n")
    refused = await signed_in("templates", "push", str(file))
    assert refused.code == 6
    assert "web: the newest version is 1, by admin" in refused.err
    assert "--base NAME=VERSION" in refused.err
    assert "version 2" in await signed_in.ok("templates", "push", str(file), "--base", "web=1")
    file.write_text(WEB)
    assert (await signed_in("templates", "push", str(file), "--base", "web=1")).code == 6
    assert (await signed_in("templates", "push", str(file), "--base", "web")).code == 2
    assert "version 3" in await signed_in.ok("templates", "push", str(file), "--base", "web=1", "--force")
