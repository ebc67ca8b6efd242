// The dialog that makes a workspace.

import {get, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import * as store from "../store.js";
import {state} from "../store.js";
import {failed} from "../toasts.js";
import {templatePicker} from "./template_fields.js";

export async function createWorkspace() {
  const picker = await offeredTemplates();
  const start = el("input", {type: "checkbox", name: "start", id: "create-start", checked: true});
  const body = el(
    "div",
    {},
    field("Name", el("input", {name: "name", required: true, maxlength: 255, autocomplete: "off", autofocus: true})),
    field("Description", el("input", {name: "description", autocomplete: "off"})),
    picker?.node,
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
        ...picker?.body(data),
        start: data.get("start") === "on",
      }),
  });
  if (created) store.put(created);
}

/** What this person may start from; null when that cannot be asked: the default is used then. */
async function offeredTemplates() {
  try {
    const {items} = await get("templates");
    const standard = state.about?.profiles.find((profile) => profile.default)?.name;
    return items.length ? templatePicker(items, standard) : null;
  } catch (error) {
    failed(error, "Templates");
    return null;
  }
}
