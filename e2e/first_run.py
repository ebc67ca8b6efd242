"""`make first-run`: from `git clone` to the first workspace open in a browser, on a machine that has nothing, timed.

A fresh clone, an empty home, empty caches of pip, uv and npm; `make up` (or, with `--wheel`, `pip install` of a built
wheel and `codehub up`), then a person's way in Chromium: sign in, create, open, see the IDE's editor. A second workspace
follows, to show what it takes once the IDE is there. Prints one row for each step.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from playwright.async_api import BrowserContext, Page, expect

from e2e.pages import press, submit_credentials
from testing.browser import chromium, with_long_timeouts
from testing.codehub.services import service_dir

ROOT: Final = Path(__file__).parent.parent
_TIMEOUT_S: Final = 600.0
# What a machine has that has nothing: its way to the registries, and where programs are.
_KEPT: Final = re.compile(r"^(PATH|LANG|LC_.*|.*_proxy|.*_PROXY|.*CERT.*|.*CA_BUNDLE.*|PIP_INDEX_URL|UV_.*INDEX.*)$")


class Steps:
    """What took how long, printed as it happens."""

    def __init__(self) -> None:
        self._began = self._last = time.monotonic()

    def done(self, what: str) -> None:
        now = time.monotonic()
        print(f"{what:52} {now - self._last:7.1f} s {now - self._began:8.1f} s", flush=True)
        self._last = now


def _environment(place: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if _KEPT.match(name)}
    return {**kept, "HOME": str(place / "home"), "CODEHUB_DATA_DIR": str(place / "data")}


def _run(command: Sequence[str | Path], where: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S)
    if done.returncode:
        sys.exit(f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}")


@contextlib.contextmanager
def _up(command: Sequence[str | Path], where: Path, environment: dict[str, str]) -> Iterator[tuple[str, str]]:
    """The dashboard's address and the admin's password, as `up` says them."""
    log = where / "up.output"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=where, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        deadline = time.monotonic() + _TIMEOUT_S
        while not (found := re.search(r"CodeHub is ready:\s+(\S+).*?password\s+(\S+)", log.read_text(), re.S)):
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(log.read_text()[-4000:])
            time.sleep(0.02)
        yield found[1], found[2]
    finally:
        # As Ctrl-C does: to all that the terminal runs.
        os.killpg(process.pid, signal.SIGINT)
        process.wait(90)


async def _person(url: str, password: str, steps: Steps) -> None:
    async with chromium() as browser:
        context = with_long_timeouts(await browser.new_context(viewport={"width": 1280, "height": 800}))
        context.set_default_timeout(_TIMEOUT_S * 1000)
        expect.set_options(timeout=_TIMEOUT_S * 1000)
        page = await context.new_page()
        await page.goto(url)
        await submit_credentials(page, "admin", password)
        await expect(page.get_by_role("heading", name="No workspaces yet")).to_be_visible()
        steps.done("signed in, in Chromium")
        await _create_and_open(context, page, "hello", steps, "the IDE is installed and the first workspace runs")
        await _create_and_open(context, page, "second", steps, "a second workspace runs")


async def _create_and_open(context: BrowserContext, page: Page, name: str, steps: Steps, what: str) -> None:
    await press(page, "New workspace")
    dialog = page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_role("button", name="Create").click()
    opener = page.get_by_role("link", name=f"Open {name} in a new tab")
    await expect(opener).to_be_visible()
    steps.done(what)
    async with context.expect_page() as opened:
        await opener.click()
    ide = await opened.value
    await expect(ide.locator(".monaco-workbench .part.editor")).to_be_visible()
    steps.done(f"{name} is open: code-server's editor is on the screen")
    await ide.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", action="store_true", help="pip install of a built wheel instead of a clone")
    wheel = parser.parse_args().wheel
    place = service_dir()
    environment = _environment(place)
    (place / "home").mkdir(mode=0o755)
    built = place / "dist"
    if wheel:
        build: list[str | Path] = [
            ROOT / ".venv/bin/uv",
            "build",
            "--quiet",
            "--wheel",
            "--no-build-isolation",
            "--out-dir",
            built,
        ]
        _run([*build, ROOT / "packages/codehub"], ROOT, {**environment, "VIRTUAL_ENV": str(ROOT / ".venv")})
    steps = Steps()
    command: list[str | Path]
    try:
        if wheel:
            _run(["python3", "-m", "venv", "venv"], place, environment)
            _run([place / "venv/bin/pip", "install", "--quiet", next(built.glob("*.whl"))], place, environment)
            steps.done("python3 -m venv; pip install codehub (the wheel)")
            where, command, program = place, [place / "venv/bin/codehub", "up"], place / "venv/bin/codehub"
        else:
            _run(["git", "clone", "--quiet", f"file://{ROOT}", "clone"], place, environment)
            steps.done("git clone (from this disk)")
            where, command, program = place / "clone", ["make", "up"], place / "clone/.venv/bin/codehub"
        try:
            with _up(command, where, environment) as (url, password):
                steps.done(f"{' '.join(map(str, command[-2:])).split('/')[-1]}: ready, password shown")
                asyncio.run(_person(url, password, steps))
        finally:
            _run([program, "down"], where, environment)
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
