"""Runs the setup of a workspace: clone, dotfiles, commands of its template and of devcontainer.json, in this order.

Steps done once per home are recorded in the home, steps of this start in the runtime folder, so a restarted `workspaced`
resumes. A failed step is explained and leaves the workspace usable; the other steps still run, except those that need the
clone.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from typing import Callable

from . import devcontainer, setup_plan
from .errors import RequestError, conflict
from .git_access import write_file
from .holder import shell
from .image_step import ImageStep
from .link import Link
from .processes import Process, Processes, bounded
from .setup_plan import Step, plain
from .step_results import overdue, progress_of, read_json, result_of, skipped
from .with_environment import expand

_POLL_INTERVAL_S = 0.5
_KEPT_LOG = 256 << 10
_TEMPLATE = "template"  # among what is recorded for the home
_FAILED = "failed"  # among what is recorded for this start: the command of devcontainer.json that failed first
PARTIAL_BYTES = 100 << 20
_KILL_AFTER_S = 2.0
# A clone that is killed leaves git running, which has a session of its own, and its part of the files.
_CLEAN_UP_S = 20.0
_LIMIT_S = 3600.0  # for a CodeHub that sends none


class Setup:
    def __init__(self, home: str, state: str, runtime: str, processes: Processes, link: Link) -> None:
        self._home = home
        self._folder = os.path.join(state, "setup")
        self._home_file = os.path.join(self._folder, "state.json")
        self._start_file = os.path.join(runtime, "setup.json")
        self._processes = processes
        self._link = link
        self._done_once: dict[str, dict[str, object]] = read_json(self._home_file)
        if not os.path.exists(self._start_file):  # a new start repeats what the end of an earlier one interrupted
            self._done_once = {id_: each for id_, each in self._done_once.items() if not self._was_interrupted(each)}
        self._done_now: dict[str, dict[str, object]] = read_json(self._start_file)
        self._steps: list[Step] = []
        self._message: dict[str, object] = {}
        self._found: dict[str, object] = {}  # of devcontainer.json
        self._wants_image = False  # its owner asked for the image
        self.image = ImageStep(link)
        self._retry = 0
        self._task: asyncio.Task[None] | None = None
        self._busy = self._again = False
        self._stopped: dict[str, dict[str, object]] = {}  # steps that were stopped, and what to record of them
        self.on_environment: Callable[[dict[str, str]], None] = lambda env: None
        os.makedirs(self._folder, mode=0o700, exist_ok=True)

    def take(self, message: dict[str, object]) -> None:
        """Handle CodeHub's setup message. The first message of a start defines the steps; later ones only retry."""
        retry = message.get("retry")
        number = retry if isinstance(retry, int) else 0
        if not self._message:
            self._message, self._retry = message, max(number, int(str(self._done_now.get("retry", {}).get("n", 0))))
            self._steps = setup_plan.first_steps(message)
            self._begin()
        if number > self._retry:
            self._retry, self._wants_image = number, True
            self._done_now["retry"] = {"n": number}
            self._message = {**self._message, "repo": message.get("repo"), "dotfiles": message.get("dotfiles")}
            self._forget_failed()
            self._begin()

    def _begin(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._run())

    def _forget_failed(self) -> None:
        self._steps = setup_plan.first_steps(self._message)
        for known in (self._done_once, self._done_now):
            for id_ in [id_ for id_, entry in known.items() if setup_plan.may_repeat(entry)]:
                del known[id_]

    async def _run(self) -> None:
        self._busy = True
        while self._again:
            self._again = False
            self._found.pop("error", None)
            try:
                for step in list(self._steps):
                    await self._step(step)
                await self._more()
            except OSError as error:
                self._found["error"] = f"The state of the setup cannot be saved: {error.strerror}"
        self._busy = False
        await self.report()

    async def _more(self) -> None:
        """Add the steps of the repository and the template once the files exist."""
        folder, clone = self._folders()
        cloned = self._entry("clone").get("state") == "done"
        steps = setup_plan.command_steps(
            self._template_commands(), "template", folder if cloned else "", needs_clone=False
        )
        if cloned:
            place = devcontainer.place_of(self._home, folder, clone)
            self._found = await devcontainer.load(self._link, self._home, place)
            await self._image()
            self._apply()
            steps += setup_plan.command_steps(self._found.get("commands"), "devcontainer", place, needs_clone=True)
        self._steps += [step for step in steps if step.id not in {known.id for known in self._steps}]
        await self.report()
        for group in setup_plan.groups(self._steps[len(setup_plan.first_steps(self._message)) :]):
            await asyncio.gather(*(self._step(step) for step in group))

    def _template_commands(self) -> object:
        """Return the commands of the template with which the home was made: those of a later version are for new homes."""
        if _TEMPLATE not in self._done_once:
            self._done_once[_TEMPLATE] = {"commands": self._message.get("commands")}
            self._save()
        return self._done_once[_TEMPLATE].get("commands")

    async def _image(self) -> None:
        """Wait for the image of devcontainer.json: its commands need it. Without it, they run where the workspace is."""
        image = self._found.get("image")
        if not isinstance(image, dict):
            return
        step = Step("image-" + str(image.get("id")), str(image.get("title")), "image", False, {})
        self._steps = [known for known in self._steps if known.kind != "image"]
        self._steps.insert(len(setup_plan.first_steps(self._message)), step)
        state, message = image.get("state"), str(image.get("message") or "")
        if state == "applied":
            self._done_once.pop(step.id, None)
            self._done_now[step.id] = {"state": "done"}
        elif state == "failed":
            self._done_once[step.id] = {"state": "failed", "message": message, "ended_at": time.time()}
        elif step.id not in self._done_once:  # one that failed waits for its owner
            if state != "auto" and not self._wants_image:
                self._done_now[step.id] = {"state": "skipped", "message": message}
            else:
                await self._prepare(step)
        self._wants_image = False
        self._save()
        await self.report()

    async def _prepare(self, step: Step) -> None:
        self._done_now[step.id] = {"state": "running", "started_at": time.time()}
        request = self._found.get("request")

        def keep_output() -> None:
            with contextlib.suppress(OSError):
                write_file(self._log_file(step), plain(self.image.output))

        why = await self.image.prepare(request if isinstance(request, dict) else {}, self.report, keep_output)
        self._done_now[step.id] = {"state": "done"}
        if why:
            del self._done_now[step.id]
            message = f"{why[:1].upper()}{why[1:]}. The workspace goes on with the image of its template."
            self._done_once[step.id] = {"state": "failed", "message": message, "ended_at": time.time()}

    def _log_file(self, step: Step) -> str:
        return os.path.join(self._folder, f"{step.id}.log")

    def _apply(self) -> None:
        env = self._found.get("env")
        if isinstance(env, dict):
            clean = {str(name): str(value) for name, value in env.items()}
            write_file(os.path.join(self._folder, "environment.json"), json.dumps(clean))
            self.on_environment(clean)
        notes = devcontainer.write_settings(self._home, self._found.get("settings"))
        ignored = self._found.get("ignored")
        shown: list[object] = [*(ignored if isinstance(ignored, list) else []), *notes]
        self._found["ignored"] = shown
        extensions = self._found.get("extensions")
        if not isinstance(extensions, list) or not extensions:
            return
        if not shutil.which("code-server", path=self._processes.path):
            shown.append(["extensions", "need code-server, which this workspace does not have"])
            return
        words = ["code-server"]
        for extension in extensions:
            words += ["--install-extension", str(extension)]
        id_ = "extensions-" + setup_plan.digest(*extensions)
        if id_ not in {step.id for step in self._steps}:
            self._steps.append(Step(id_, "Install extensions", "command", True, {"words": words, "cwd": ""}))

    def _folders(self) -> tuple[str, str]:
        """Return the folder that the IDE opens, and the clone; relative to the home, empty if they do not exist."""
        wanted, clone = setup_plan.folders_of(self._message.get("repo"))
        there = [each for each in (wanted, clone) if each and os.path.isdir(os.path.join(self._home, each))]
        return (there[0], there[-1]) if there else ("", "")

    # --- one step

    def _known(self, step: Step) -> dict[str, dict[str, object]]:
        return self._done_once if step.once else self._done_now

    def _entry(self, id_: str) -> dict[str, object]:
        return self._done_once.get(id_) or self._done_now.get(id_) or {}

    async def _step(self, step: Step) -> None:
        if step.kind == "image":
            return
        known = self._known(step)
        entry = known.get(step.id, {})
        if entry.get("state") in ("done", "failed", "skipped"):
            return  # a clone that the user deleted stays deleted
        if step.needs_clone and (why := self._why_not()):
            known[step.id] = {"state": "skipped", "message": why}
            self._save()
            return
        process = self._running(entry)
        if process is None:
            try:
                process = self._start(step)
            except RequestError as error:
                known[step.id] = {"state": "failed", "message": error.message, "ended_at": time.time()}
                await self._ended(step)
                return
            known[step.id] = {"state": "running", "started_at": time.time(), "process": process.id}
            self._save()
        await self._follow(step, process)

    def _running(self, entry: dict[str, object]) -> Process | None:
        """Return the process of an earlier `workspaced` if it still runs. A lost one is started again."""
        with contextlib.suppress(RequestError):
            process = self._processes.get(str(entry.get("process", "")))
            if process.state != "lost":
                return process
        return None

    def _was_interrupted(self, entry: dict[str, object]) -> bool:
        """Return whether the end of an earlier start ended this, whoever noticed: `workspaced` is stopped too."""
        if entry.get("state") != "running":
            return bool(entry.get("interrupted"))
        process = self._running(entry)
        return process is None or process.exit_code != 0

    def _start(self, step: Step) -> Process:
        if step.kind == "command":
            words = step.spec.get("words")
            text = step.spec.get("shell")
            command = [shell(), "-c", str(text)]
            if isinstance(words, list):
                command = [expand(str(word), self._processes.env) for word in words]
            cwd = str(step.spec.get("cwd") or "")
            here = cwd if os.path.isdir(os.path.join(self._home, cwd)) else ""
            return self._processes.start("process", command, here or None)
        name = str(step.spec.get("name")) if step.kind == "clone" else ".dotfiles"
        spec = {
            "url": str(step.spec["url"]),
            "ref": str(step.spec.get("ref") or ""),
            "name": name,
            "home": self._home,
            "id": setup_plan.digest(step.spec["url"], step.kind),
            "path": str(step.spec.get("path") or ""),
            "staging": os.path.join(self._folder, f"{step.kind}-staging", name),
            "result": self._result_file(step),
            "partial_bytes": str(step.spec.get("partial_bytes") or PARTIAL_BYTES),
        }
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._result_file(step))
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{step.kind}.py")
        words = [sys.executable, "-I", "-S", "-B", program]
        return self._processes.start("process", words, None, None, json.dumps(spec))

    def _result_file(self, step: Step) -> str:
        return os.path.join(self._folder, f"{step.id}.result")

    async def _follow(self, step: Step, process: Process) -> None:
        known = self._known(step)
        ended = asyncio.ensure_future(self._processes.wait(process))
        # Not by the wall clock, which jumps when a laptop wakes. Git itself ends a clone that receives nothing, and a
        # command of each start may be a server that is meant to stay.
        limit_s = self._limit_s() if step.once and step.kind != "clone" else 0
        over_at = time.monotonic() + limit_s
        if limit_s:
            known[step.id] = {**known.get(step.id, {}), "stops_at": time.time() + limit_s}
        await self.report()
        shown = ""
        while not ended.done():
            await asyncio.wait({ended}, timeout=_POLL_INTERVAL_S)
            if limit_s and time.monotonic() > over_at and not ended.done():
                await self._stop(step, process, overdue(limit_s))
            text = progress_of(process) if step.kind != "command" else {}
            if text and json.dumps(text) != shown:
                shown = json.dumps(text)
                known[step.id] = {**known.get(step.id, {}), "progress": text}
                await self.report()
        code = await ended
        stopped = self._stopped.pop(step.id, None)
        known[step.id] = result_of(step, known.get(step.id, {}), code, self._result_file(step), stopped)
        self._keep_log(step, process)
        await self._ended(step)

    async def _ended(self, step: Step) -> None:
        if step.needs_clone and self._entry(step.id).get("state") == "failed":
            self._done_now.setdefault(_FAILED, {"state": "failed", "title": step.title})
        self._save()
        await self.report()

    def _why_not(self) -> str:
        """Return why the next command of devcontainer.json is not run. Its specification ends them at the first failure."""
        if self._entry("clone").get("state") != "done":
            return "The repository is not there."
        failed = self._done_now.get(_FAILED)
        return f"It was not run, because {failed.get('title')} failed." if failed else ""

    def _limit_s(self) -> float:
        limit = self._message.get("step_limit_s")
        return float(limit) if isinstance(limit, (int, float)) else _LIMIT_S

    async def skip(self, step_id: str) -> None:
        """Stop a running step on request; the next ones follow."""
        entry = self._entry(step_id)
        process = self._running(entry)
        found = [step for step in self._steps if step.id == step_id]
        if not found or entry.get("state") != "running" or process is None or not process.alive:
            raise conflict("this step is no longer running")
        await self._stop(found[0], process, skipped(found[0]))

    async def _stop(self, step: Step, process: Process, outcome: dict[str, object]) -> None:
        self._stopped.setdefault(step.id, outcome)
        await self._processes.end(process, _KILL_AFTER_S if step.kind == "command" else _CLEAN_UP_S)

    def _keep_log(self, step: Step, process: Process) -> None:
        text, _ = bounded(process.log_path("stdout"), process.log_path("stdout"))
        with contextlib.suppress(OSError):
            write_file(self._log_file(step), plain(text)[-_KEPT_LOG:])

    def _save(self) -> None:
        write_file(self._home_file, json.dumps(self._done_once))
        write_file(self._start_file, json.dumps(self._done_now))

    # --- what is shown

    @property
    def keeps_awake(self) -> bool:
        """Return whether something runs that ends by itself. A command of each start counts like any other program."""
        running = [step for step in self._steps if self._entry(step.id).get("state") == "running"]
        return self._busy and (not running or any(step.once or step.kind != "command" for step in running))

    def shown(self) -> dict[str, object]:
        return {
            "home": self._home,
            "folder": self._folders()[0],
            "steps": [self._shown_step(step) for step in self._steps],
            "ports": self._found.get("ports") or [],
            "port_labels": self._found.get("port_labels") or {},
            "ignored": self._found.get("ignored") or [],
            "error": self._found.get("error"),
            "running": self._busy,
        }

    def _shown_step(self, step: Step) -> dict[str, object]:
        entry = self._entry(step.id)
        if step.kind == "image" and entry.get("state") == "running":
            entry = {**entry, "progress": self.image.progress}
        names = ("message", "kind", "progress", "exit_code", "notes", "started_at", "ended_at", "stops_at")
        shown = {name: entry[name] for name in names if entry.get(name) is not None}
        return {
            "id": step.id,
            "title": step.title,
            "state": entry.get("state", "pending"),
            "once": step.once,
            **shown,
        }

    async def report(self) -> None:
        await self._link.tell({"event": "setup", "setup": self.shown()})

    def log(self) -> str:
        """Return the output of all steps, in order."""
        parts: list[str] = []
        for step in self._steps:
            entry = self._entry(step.id)
            parts.append(f"=== {step.title} ({entry.get('state', 'pending')})\n{self._log_of(step, entry)}")
            if entry.get("message"):
                parts.append(f"{entry['message']}\n")
        return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts)

    def _log_of(self, step: Step, entry: dict[str, object]) -> str:
        if step.kind == "image" and entry.get("state") == "running":
            return plain(self.image.output)
        process = self._running(entry)
        if entry.get("state") == "running" and process is not None:
            return plain(bounded(process.log_path("stdout"), process.log_path("stdout"))[0])
        with contextlib.suppress(OSError):
            with open(self._log_file(step), encoding="utf-8", errors="replace") as file:
                return file.read()
        return ""
