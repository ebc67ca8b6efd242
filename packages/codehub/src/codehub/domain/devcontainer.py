"""Reads devcontainer.json: what a repository requests from its environment, and which parts this runtime supports.

Pure. The file is untrusted, because the repository's author wrote it: it may choose an image only if the installation
allows it, and never mounts, privileges or capabilities. Its commands run as the workspace's own user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from codehub.domain.devcontainer_ports import PortAttributes, parse_port
from codehub.domain.devcontainer_support import Unsupported, unsupported
from codehub.domain.environment_names import is_own, is_variable_name
from codehub.domain.errors import Invalid
from codehub.domain.jsonc import parse_jsonc

# Possible paths of the file, in order of preference. Then one folder below the first, sorted by name.
PATHS = (".devcontainer/devcontainer.json", ".devcontainer.json")
# No `$` inside: otherwise each beginning of a variable would be searched to the end of the text.
_VARIABLE = re.compile(r"\$\{([A-Za-z]+)(?::([^}:$]*)(?::([^}$]*))?)?\}")
_EXTENSION = re.compile(r"-?[A-Za-z0-9][A-Za-z0-9-]*\.[A-Za-z0-9][A-Za-z0-9._-]*(?:@[0-9A-Za-z.+-]+)?")
_MOST = 100
_DEEPEST = 50
_MOST_ENV_BYTES = 32 << 10  # as much as all secrets of a user: the kernel rejects a larger environment
# What variables expand to, in the whole file. The workspace names its folders, and the file can repeat them 10,000 times.
_MOST_EXPANDED = 256 << 10
_LONGEST_PATH = 4096
_OWN_PATH = "${containerEnv:PATH}"


class When(StrEnum):
    """Once per home, or at each start. Commands run in the order of the members."""

    ON_CREATE = "onCreateCommand"
    UPDATE_CONTENT = "updateContentCommand"
    POST_CREATE = "postCreateCommand"
    POST_START = "postStartCommand"

    @property
    def once_per_home(self) -> bool:
        return self is not When.POST_START


@dataclass(frozen=True, slots=True)
class Command:
    """`words` is run as it is; `shell` is run by /bin/sh -c.

    `name` is set if the file defines several that run in parallel.
    """

    when: When
    name: str = ""
    shell: str = ""
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DevContainer:
    image: str = ""
    dockerfile: str = ""
    build_context: str = "."
    build_args: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    build_target: str = ""
    features: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    features_first: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    user: str = ""
    commands: tuple[Command, ...] = ()
    extensions: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    ports: tuple[int, ...] = ()
    port_labels: Mapping[int, str] = field(default_factory=lambda: MappingProxyType({}))
    # Secrets that the repository recommends.
    secrets: tuple[str, ...] = ()
    # Key and reason, shown on the card.
    ignored: tuple[tuple[str, Unsupported], ...] = ()

    @property
    def needs_build(self) -> bool:
        return bool(self.dockerfile or self.features)


def parse_devcontainer(text: str, *, containers: bool, folder: str, home: str, workspace_id: str) -> DevContainer:
    """Parse the file.

    `containers`: whether this runtime runs images. `folder` is the path of the clone inside the workspace.
    `workspace_id` is the value of `${devcontainerId}`, which stays the same when an image is built again.
    """
    if max(len(folder), len(home)) > _LONGEST_PATH:
        raise Invalid(f"the path of the clone or of the home has more than {_LONGEST_PATH} characters")
    document = parse_jsonc(text)
    if not isinstance(document, dict):
        raise Invalid("devcontainer.json holds one object")
    variables = {
        "containerWorkspaceFolder": folder,
        "localWorkspaceFolder": folder,
        "containerWorkspaceFolderBasename": folder.rsplit("/", 1)[-1],
        "localWorkspaceFolderBasename": folder.rsplit("/", 1)[-1],
        "devcontainerId": workspace_id,
        "userHome": home,
    }
    return _Parser(document, containers, variables).parse()


class _Parser:
    def __init__(self, document: Mapping[str, object], containers: bool, variables: Mapping[str, str]) -> None:
        self._left = dict(document)
        self._containers = containers
        self._variables = variables
        self._ignored: list[tuple[str, Unsupported]] = []
        self._expanded = 0

    def parse(self) -> DevContainer:
        image, dockerfile, context, build_args, target = self._image_or_build()
        features = {name: self._expand_all(options) for name, options in self._take_object("features").items()}
        features_first = tuple(_texts(self._left, "overrideFeatureInstallOrder"))
        self._left.pop("overrideFeatureInstallOrder", None)
        merged = {**self._variables_of("containerEnv"), **self._variables_of("remoteEnv")}
        env = {name: value for name, value in merged.items() if value is not None}
        if sum(len(name) + len(value.encode(errors="replace")) for name, value in env.items()) > _MOST_ENV_BYTES:
            raise Invalid(f"containerEnv and remoteEnv have at most {_MOST_ENV_BYTES >> 10} KiB")
        users = {key: self._take_text(key) for key in ("remoteUser", "containerUser")}
        user = users["remoteUser"] or users["containerUser"]
        commands = tuple(command for when in When for command in self._commands(when))
        extensions, settings = self._customizations()
        ports, attributes = self._ports()
        secrets = tuple(self._take_object("secrets"))[:_MOST]
        if not self._containers:
            wants = {"image": image, "build": dockerfile, "features": features, **users}
            self._ignored += [(key, Unsupported.NEEDS_CONTAINER) for key, wanted in wants.items() if wanted]
            image = dockerfile = user = ""
            features = {}
        else:
            self._ignored += [(key, Unsupported.OWN_USER) for key, name in users.items() if name not in ("", "coder")]
        if self._expand(str(self._left.get("workspaceFolder"))) == self._variables["containerWorkspaceFolder"]:
            del self._left["workspaceFolder"]
        self._ignored += [*attributes.ignored.items(), *unsupported(self._left)]
        return DevContainer(
            image=image,
            dockerfile=dockerfile,
            build_context=context,
            build_args=MappingProxyType(build_args),
            build_target=target,
            features=MappingProxyType(features),
            features_first=features_first,
            env=MappingProxyType(env),
            user=user,
            commands=commands,
            extensions=extensions,
            settings=MappingProxyType(settings),
            ports=ports,
            port_labels=MappingProxyType(attributes.labels),
            secrets=secrets,
            ignored=tuple(dict(self._ignored).items()),
        )

    def _image_or_build(self) -> tuple[str, str, str, dict[str, str], str]:
        image = self._take_text("image")
        build = self._take_object("build")
        dockerfile = self._build_text(build, "dockerfile") or self._take_text("dockerFile")
        context = self._build_text(build, "context") or self._take_text("context") or "."
        target = self._build_text(build, "target")
        self._left.pop("dockerFile", None)
        self._left.pop("context", None)
        arguments = build.pop("args", {})
        if not isinstance(arguments, dict) or not all(isinstance(value, str) for value in arguments.values()):
            raise Invalid("build.args holds texts")
        for key, value in (("build.dockerfile", dockerfile), ("build.context", context)):
            _check_inside(key, value)
        self._ignored += unsupported(build, "build.")
        expanded = {name: self._expand(value) for name, value in arguments.items()}
        return image, dockerfile, context, expanded, target

    def _build_text(self, build: dict[str, object], key: str) -> str:
        value = build.pop(key, "")
        if not isinstance(value, str):
            raise Invalid(f"build.{key} is a text")
        return self._expand(value)

    def _commands(self, when: When) -> list[Command]:
        value = self._left.pop(when.value, None)
        if isinstance(value, dict):
            if len(value) > _MOST:
                raise Invalid(f"{when.value} has at most {_MOST} commands")
            return [self._command(when, str(name), inner) for name, inner in value.items()]
        return [] if value is None or value in ("", []) else [self._command(when, "", value)]

    def _command(self, when: When, name: str, value: object) -> Command:
        match value:
            case str():
                return Command(when, name, shell=self._expand(value, by_shell=True))
            case list() if value and all(isinstance(word, str) for word in value):
                return Command(when, name, words=tuple(self._expand(word) for word in value))
            case _:
                raise Invalid(f"{when.value} is a text, a list of texts, or an object of those")

    def _customizations(self) -> tuple[tuple[str, ...], dict[str, object]]:
        customizations = self._take_object("customizations")
        vscode = customizations.pop("vscode", {})
        if not isinstance(vscode, dict):
            raise Invalid("customizations.vscode is an object")
        self._ignored += [
            (f"customizations.{tool}", Unsupported.OTHER_TOOL) for tool, value in customizations.items() if value
        ]
        extensions = [*_texts(vscode, "extensions"), *_texts(self._left, "extensions")]
        self._left.pop("extensions", None)
        extensions = [self._extension(extension) for extension in extensions]
        settings = vscode.get("settings", {})
        rest = {key: value for key, value in vscode.items() if key not in ("extensions", "settings")}
        self._ignored += unsupported(rest, "customizations.vscode.")
        if not isinstance(settings, dict):
            raise Invalid("customizations.vscode.settings is an object")
        # A leading '-' removes an extension that an image or a feature added.
        removed = {extension[1:].lower() for extension in extensions if extension.startswith("-")}
        kept = [e for e in extensions if not e.startswith("-") and e.lower() not in removed]
        old = self._take_object("settings")
        return tuple(dict.fromkeys(kept)), {name: self._expand_all(v) for name, v in {**old, **settings}.items()}

    def _extension(self, text: str) -> str:
        """Return an extension's id, or the path of a `.vsix` file in the repository."""
        if _EXTENSION.fullmatch(text) and not text.endswith(".vsix"):
            return text
        folder = self._variables["containerWorkspaceFolder"] + "/"
        inside = self._expand(text).removeprefix(folder).removeprefix("./")
        if not text.endswith(".vsix") or inside.startswith("/") or ":" in inside or ".." in inside.split("/"):
            raise Invalid(
                f"{text!r} is neither the id of an extension (publisher.name) nor a .vsix file in the repository"
            )
        return folder + inside

    def _ports(self) -> tuple[tuple[int, ...], PortAttributes]:
        ports: list[int] = []
        for item in _list(self._left.pop("forwardPorts", []), "forwardPorts"):
            number = parse_port(item)
            if number is None:
                raise Invalid("forwardPorts holds port numbers")
            ports.append(number)
        attributes = PortAttributes()
        attributes.read("portsAttributes", self._take_object("portsAttributes"))
        attributes.read_others("otherPortsAttributes", self._take_object("otherPortsAttributes"))
        return tuple(dict.fromkeys(ports)), attributes

    def _variables_of(self, key: str) -> dict[str, str | None]:
        """Return the variables; None removes one."""
        found: dict[str, str | None] = {}
        for name, text in self._take_object(key).items():
            if not is_variable_name(name) or not isinstance(text, str | None) or (text is not None and "\0" in text):
                raise Invalid(f"{key}.{name} is not an environment variable with a text")
            if is_own(name) and not (name == "PATH" and _OWN_PATH in (text or "")):
                self._ignored.append((f"{key}.{name}", Unsupported.OWN_VARIABLE))
            else:
                found[name] = None if text is None else self._expand(text)
        return found

    def _expand(self, text: str, *, by_shell: bool = False) -> str:
        """Expand `${containerWorkspaceFolder}` and similar.

        `${localEnv:X}` expands to its default: the host's environment is hidden. `${containerEnv:X}` is expanded inside
        the workspace, by `workspaced` or by the shell.
        """

        def one(found: re.Match[str]) -> str:
            name, argument, default = found.groups()
            if name == "containerEnv" and argument:
                fallback = f":-{default}" if default else ""
                return f"${{{argument}{fallback}}}" if by_shell else found.group()
            if name == "localEnv":
                if not default:
                    self._ignored.append((f"${{localEnv:{argument or ''}}}", Unsupported.LOCAL_VARIABLE))
                return default or ""
            value = self._variables.get(name, found.group())
            self._expanded += len(value)
            if self._expanded > _MOST_EXPANDED:
                raise Invalid(f"its variables expand to more than {_MOST_EXPANDED >> 10} KiB")
            return value

        return _VARIABLE.sub(one, text)

    def _expand_all(self, value: object, depth: int = 0) -> object:
        """Expand every text in a setting or in the options of a feature."""
        if depth > _DEEPEST:
            raise Invalid("devcontainer.json is nested too deeply")
        match value:
            case str():
                return self._expand(value)
            case list():
                return [self._expand_all(item, depth + 1) for item in value]
            case dict():
                return {key: self._expand_all(item, depth + 1) for key, item in value.items()}
            case _:
                return value

    def _take_object(self, key: str) -> dict[str, object]:
        value = self._left.pop(key, None)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise Invalid(f"{key} is an object")
        return value

    def _take_text(self, key: str) -> str:
        value = self._left.pop(key, None)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise Invalid(f"{key} is a text")
        return self._expand(value)


def _texts(table: Mapping[str, object], key: str) -> list[str]:
    found = _list(table.get(key, []), key)
    if not all(isinstance(item, str) for item in found):
        raise Invalid(f"{key} is a list of texts")
    return [str(item) for item in found]


def _list(value: object, key: str) -> list[object]:
    if not isinstance(value, list) or len(value) > _MOST:
        raise Invalid(f"{key} is a list of at most {_MOST}")
    return value


def _check_inside(key: str, path: str) -> None:
    """The file is in a subfolder, so one level up is still inside the repository; more is not."""
    if path.startswith("/") or "\\" in path or path.split("/").count("..") > 1:
        raise Invalid(f"{key} leaves the repository")
