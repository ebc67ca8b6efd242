"""Request schemas: bodies and queries. Strict: unknown fields are errors that name them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, Strict, field_validator

from codehub.domain.toml_places import LONGEST_SOURCE
from codehub.services.passwords import LONGEST, SHORTEST

# One line: no control characters, no line or paragraph separators. Texts may contain tabs and line breaks.
_NOT_IN_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_NOT_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_LINE_SCHEMA = "^[^\\x00-\\x1f\\x7f-\\x9f\\u2028\\u2029]*$"
_TEXT_SCHEMA = "^[^\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f-\\x9f]*$"


def _line(value: str) -> str:
    if _NOT_IN_LINE.search(value):
        raise ValueError("must not contain control characters or line breaks")
    if not value.strip():
        raise ValueError("must not be blank")
    return value


def _text(value: str) -> str:
    if _NOT_IN_TEXT.search(value):
        raise ValueError("must not contain control characters other than tabs and line breaks")
    return value


def _secret(value: str) -> str:
    if "\x00" in value:
        raise ValueError("must not contain NUL")
    return value


Name = Annotated[
    str,
    Field(min_length=1, max_length=255, json_schema_extra={"pattern": _LINE_SCHEMA}),
    AfterValidator(_line),
]
Description = Annotated[
    str, Field(max_length=4_096, json_schema_extra={"pattern": _TEXT_SCHEMA}), AfterValidator(_text)
]
Memo = Annotated[str, Field(max_length=65_536, json_schema_extra={"pattern": _TEXT_SCHEMA}), AfterValidator(_text)]
ImageRef = Annotated[
    str,
    Field(min_length=1, max_length=512, json_schema_extra={"pattern": _LINE_SCHEMA}),
    AfterValidator(_line),
]
LoginName = Annotated[
    str,
    Field(min_length=1, max_length=64, json_schema_extra={"pattern": _LINE_SCHEMA}),
    AfterValidator(_line),
]
Username = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._@-]*$",
        description="Letters, digits and . _ @ -, starting with a letter or a digit.",
    ),
]
Password = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(_secret)]
NewPassword = Annotated[
    str,
    Field(min_length=SHORTEST, max_length=LONGEST, description=f"At least {SHORTEST} characters."),
    AfterValidator(_secret),
]


class Wire(BaseModel):
    # Python's JSON has NaN and infinity, and every comparison with NaN is false.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, allow_inf_nan=False
    )


def _without_null(schema: dict[str, Any]) -> None:
    for name, field in schema.get("properties", {}).items():
        kept = [choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}]
        if len(kept) == 1:
            schema["properties"][name] = {
                **kept[0],
                **{k: v for k, v in field.items() if k not in ("anyOf", "default")},
            }


class Patch(Wire):
    """Omitted fields stay unchanged; null is not allowed."""

    model_config = ConfigDict(json_schema_extra=_without_null)

    @field_validator("*", mode="before")
    @classmethod
    def _no_null(cls, value: object) -> object:
        if value is None:
            raise ValueError("must not be null; omit it to keep the current value")
        return value


class Query(BaseModel):
    """Queries are text, so numbers and booleans are parsed from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class PageQuery(Query):
    page: int = Field(1, ge=1, le=1_000_000)
    per_page: int = Field(50, ge=1, le=200)

    @property
    def offset(self) -> int:
        return (self.page - 1) * self.per_page


class WorkspacePageQuery(PageQuery):
    all: bool = Field(False, description="Workspaces of all users; administrators only.")
    deleted: bool = Field(False, description="Deleted workspaces that can be undeleted; administrators only.")


class EventsQuery(Query):
    all: bool = Field(False, description="Workspaces of all users; administrators only.")


class DeleteQuery(Query):
    force: bool = Field(False, description="From any status; the workspace is stopped first.")


class LogsQuery(Query):
    follow: bool = Field(False, description="Keep the connection open and send new output.")
    tail: int | None = Field(None, ge=0, le=100_000, description="Only this many of the last lines.")


class Login(Wire):
    username: LoginName
    password: Password


class PasswordChange(Wire):
    current_password: Password
    new_password: NewPassword


class TokenCreate(Wire):
    name: Name
    expires_in_days: Annotated[int, Field(ge=1, le=3_650)] | None = None
    workspace_id: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        None, description="Limits the token to this one of your workspaces."
    )


class UserCreate(Wire):
    username: Username
    password: NewPassword
    is_admin: bool = False


class UserPatch(Patch):
    password: NewPassword | None = None
    is_admin: bool | None = None
    disabled: bool | None = None


ParameterValues = Annotated[
    dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=1_024)] | bool | int | float],
    Field(max_length=64),
]
TemplateName = Annotated[str, Field(min_length=1, max_length=63)]
Source = Annotated[str, Field(min_length=1, max_length=LONGEST_SOURCE)]


class TemplatesQuery(Query):
    archived: bool = Field(False, description="Archived ones too; administrators only.")


class TemplatePush(Wire):
    source: Source = Field(description="TOML with one or more `[templates.NAME]` tables.")
    base: Annotated[dict[TemplateName, Annotated[int, Field(ge=0)]], Field(max_length=100)] = Field(
        default={},
        description="By template, the version that your text is based on; 0: none. Refused (409) if there is a newer one. "
        "For a template that is not named here, refused if the newest version is somebody else's.",
    )
    force: bool = Field(False, description="Replace newer versions too. They stay in the list of versions.")


class TemplatePreview(Wire):
    name: TemplateName | None = None
    source: Source | None = Field(None, description="A text that is not pushed yet; administrators only.")
    parameters: ParameterValues = Field(default_factory=dict)
    runtime: Literal["process", "docker", "kubernetes"] | None = Field(
        None, description="Null: the one that new workspaces get."
    )


class TimeZonePut(Wire):
    time_zone: Annotated[str, Field(min_length=1, max_length=100)] = Field(description="For example Europe/Berlin.")


class WorkspaceTemplateUpdate(Wire):
    parameters: ParameterValues = Field(default_factory=dict)


class RepositoryCreate(Wire):
    url: Annotated[
        str, Field(min_length=1, max_length=2_048, description="https://…, http://…, ssh://… or git@HOST:PATH.")
    ]
    ref: Annotated[
        str, Field(max_length=255, description="A branch, a tag or a commit; empty: the default branch.")
    ] = ""
    path: Annotated[str, Field(max_length=1_024, description="The folder in the repository that the IDE opens.")] = ""


class WorkspaceCreate(Wire):
    name: Name
    description: Description = ""
    memo: Memo = ""
    image_ref: ImageRef | None = Field(None, description="A profile's name, or an allowed image.")
    template: TemplateName | None = Field(None, description="A template's name, instead of `image_ref`.")
    parameters: ParameterValues = Field(default_factory=dict, description="Values of the template's parameters.")
    repo: RepositoryCreate | None = Field(None, description="Cloned into the home when it first runs.")
    start: bool = Field(True, description="Start it immediately; otherwise it is created archived and empty.")


class SetupRetry(Wire):
    repo: RepositoryCreate | None = Field(None, description="Cloned instead of the one that could not be cloned.")


class WorkspaceDuplicate(Wire):
    name: Name
    start: bool = Field(True, description="Start the copy immediately; otherwise it stays archived.")


class WorkspacePatch(Patch):
    name: Name | None = None
    description: Description | None = None
    memo: Memo | None = None
    desired_state: Literal["RUNNING", "STANDBY", "ARCHIVED"] | None = None


class WorkspaceTransfer(Wire):
    username: Username = Field(description="The new owner.")


class WorkspaceKeepAwake(Wire):
    until: Annotated[AwareDatetime, Strict(False)] | None = Field(
        description="Not put to sleep before this time; null ends that."
    )


class WorkspaceRecover(Wire):
    """Required after DataLost and ArchiveCorrupted: one of the kept archives, or null for an empty home."""

    archive_key: Annotated[str, Field(min_length=1, max_length=1_024)] | None = None
