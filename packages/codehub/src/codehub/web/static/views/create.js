// The dialog that makes a workspace.

import {post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {repositoryFields} from "./repository.js";
import * as store from "../store.js";
import {state} from "../store.js";

/** `asked` is what a link asked for ({repo, ref, path, name}); nothing is made before the form is sent. */
export async function createWorkspace(asked = {}) {
  const profiles = state.about?.profiles ?? [];
  const profile = el(
    "select",
    {name: "image_ref"},
    profiles.map((known) => el("option", {value: known.name, selected: known.default}, known.name)),
  );
  const repository = repositoryFields(asked);
  const start = el("input", {type: "checkbox", name: "start", id: "create-start", checked: true});
  const body = el(
    "div",
    {},
    repository.node,
    field("Name", el("input", {name: "name", required: true, value: asked.name ?? repository.suggestedName(), maxlength: 255, autocomplete: "off", autofocus: true})),
    field("Description", el("input", {name: "description", autocomplete: "off"})),
    profiles.length ? field("Profile", profile, "The IDE of the workspace.") : null,
    el("div", {class: "check"}, start, el("label", {for: "create-start"}, "Start it now")),
  );
  const created = await formDialog({
    title: "New workspace",
    body,
    yes: "Create",
    submit: (data) =>
      post("workspaces", {
        name: data.get("name"),
        description: data.get("description"),
        ...(data.get("image_ref") ? {image_ref: data.get("image_ref")} : {}),
        ...repository.value(),
        start: data.get("start") === "on",
      }),
  });
  if (created) store.put(created);
}
