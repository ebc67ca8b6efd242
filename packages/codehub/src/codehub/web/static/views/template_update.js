// Updates to a template's newest version: shows the changes, and the values it needs.

import {get, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el} from "../dom.js";
import {parameterFields, parameterValues} from "./template_fields.js";

/** Asks for confirmation. Returns the updated workspace, or null. */
export async function updateTemplate(ws) {
  const offer = await get(`workspaces/${ws.id}/template`);
  const template = await get(`templates/${encodeURIComponent(offer.name)}`);
  const lines = [...offer.changes, ...offer.problems.map((each) => `${each.where}: ${each.message}`)];
  const body = el(
    "div",
    {},
    el("p", {}, `Version ${offer.version} → ${offer.latest_version} of ${offer.name}. It takes effect at the next start; your files are not touched.`),
    offer.blocked ? el("p", {class: "problem"}, offer.blocked) : null,
    lines.length ? el("ul", {class: "changes"}, lines.map((line) => el("li", {}, line))) : el("p", {class: "quiet"}, "Nothing that concerns this workspace changes."),
    parameterFields(template.parameters, offer.parameters),
  );
  return formDialog({
    title: `Update ${ws.name}`,
    body,
    yes: "Update at next start",
    submit: (data) => post(`workspaces/${ws.id}:update-template`, {parameters: parameterValues(template.parameters, data)}),
  });
}
