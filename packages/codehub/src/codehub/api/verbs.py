"""Paths of resources with verbs: `/workspaces/{id}:start`."""

from __future__ import annotations

from typing import Final

from starlette.convertors import StringConvertor, register_url_convertor


class _BeforeVerb(StringConvertor):
    """An id ends where its verb begins, so that `{id}:start` is never parsed as an id."""

    regex = "[^/:]+"


register_url_convertor("before_verb", _BeforeVerb())
ONE_WORKSPACE: Final = "/workspaces/{workspace_id:before_verb}"
ONE_TEMPLATE: Final = "/templates/{name:before_verb}"
