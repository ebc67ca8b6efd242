// The dialog that creates a workspace.

import {get, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {nameOf, repositoryFields} from "./repository.js";
import * as store from "../store.js";
import {state} from "../store.js";
import {failed} from "../toasts.js";
import {templatePicker} from "./template_fields.js";

/**
 * `prefilled` holds the values of a link ({repo, ref, path, name, template}); nothing is created before the form is submitted.
 */
export async function createWorkspace(prefilled = {}) {
  const name = el("input", {name: "name", required: true, value: prefilled.name ?? nameOf(prefilled.repo ?? ""), maxlength: 255, autocomplete: "off", autofocus: true});
  // The workspace is named after its repository until the user chooses a name.
  let chosen = Boolean(prefilled.name);
  name.addEventListener("input", () => (chosen = name.value !== ""));
  const repository = repositoryFields(prefilled, (suggested) => {
    if (!chosen) name.value = suggested;
  });
  const picker = await offeredTemplates(prefilled.template, (template) => repository.suggest(template?.repo));
  const start = el("input", {type: "checkbox", name: "start", id: "create-start", checked: true});
  const body = el(
    "div",
    {},
    repository.node,
    field("Name", name),
    field("Description", el("input", {name: "description", autocomplete: "off"})),
    picker?.node,
    el("div", {class: "check"}, start, el("label", {for: "create-start"}, "Start it now")),
  );
  const created = await formDialog({
    title: "New workspace",
    body,
    yes: "Create",
    submit: async (data) => {
      const body = {name: data.get("name"), description: data.get("description"), ...picker?.body(data), ...repository.value(), start: data.get("start") === "on"};
      try {
        return await post("workspaces", body);
      } catch (error) {
        error.message = error.message.replaceAll("parameters.", "");
        throw error;
      }
    },
  });
  if (created) store.put(created);
}

/** The templates available to this user; null if they cannot be loaded, and the default is used. */
async function offeredTemplates(wanted, changed) {
  try {
    const {items} = await get("templates");
    const standard = state.about?.profiles.find((profile) => profile.default)?.name;
    return items.length ? templatePicker(items, standard, wanted, changed) : null;
  } catch (error) {
    failed(error, "Templates");
    return null;
  }
}
