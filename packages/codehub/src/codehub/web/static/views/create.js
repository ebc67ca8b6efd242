// The dialog that creates a workspace.

import {get, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {repositoryFields} from "./repository.js";
import * as store from "../store.js";
import {state} from "../store.js";
import {failed} from "../toasts.js";
import {templatePicker} from "./template_fields.js";

/**
 * `prefilled` holds the values of a link ({repo, ref, path, name, template}); nothing is created before the form is submitted.
 */
export async function createWorkspace(prefilled = {}) {
  const picker = await offeredTemplates(prefilled.template);
  const repository = repositoryFields(prefilled);
  const start = el("input", {type: "checkbox", name: "start", id: "create-start", checked: true});
  const body = el(
    "div",
    {},
    repository.node,
    field("Name", el("input", {name: "name", required: true, value: prefilled.name ?? repository.suggestedName(), maxlength: 255, autocomplete: "off", autofocus: true})),
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
        ...repository.value(),
        start: data.get("start") === "on",
      }),
  });
  if (created) store.put(created);
}

/** The templates available to this user; null if they cannot be loaded, and the default is used. */
async function offeredTemplates(wanted) {
  try {
    const {items} = await get("templates");
    const standard = state.about?.profiles.find((profile) => profile.default)?.name;
    return items.length ? templatePicker(items, standard, wanted) : null;
  } catch (error) {
    failed(error, "Templates");
    return null;
  }
}
