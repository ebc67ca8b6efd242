// Dialogs, based on the browser's <dialog>, so that focus, Escape and the page behind work as users expect.

import {post} from "./api.js";
import {el, field, freshId} from "./dom.js";

/** Shows something in a modal dialog until the user closes it. */
export const showDialog = ({title, body, close}) => formDialog({title, body, yes: close, cancel: null, submit: () => true});

/**
 * Shows a form in a modal dialog. `submit` is called with the form's data; it may throw to keep the dialog open and show
 * the error. Returns the result of `submit`, or null if the dialog was cancelled.
 */
export function formDialog({title, body, yes, cancel = "Cancel", danger = false, submit}) {
  return new Promise((resolve) => {
    const heading = el("h2", {id: freshId("dialog")}, title);
    const problem = el("p", {class: "problem", role: "alert", hidden: true});
    const ok = el("button", {class: danger ? "danger" : "primary", type: "submit"}, yes);
    const form = el(
      "form",
      {method: "dialog"},
      heading,
      body,
      problem,
      el("div", {class: "row end"}, cancel ? el("button", {type: "button", onclick: () => dialog.close()}, cancel) : null, ok),
    );
    const dialog = el("dialog", {"aria-labelledby": heading.id}, form);
    let answer = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (ok.getAttribute("aria-busy")) return;
      ok.setAttribute("aria-busy", "true");
      problem.hidden = true;
      try {
        answer = await submit(new FormData(form));
        dialog.close();
      } catch (error) {
        problem.textContent = error.message;
        problem.hidden = false;
        problem.scrollIntoView({block: "center"});
      } finally {
        ok.removeAttribute("aria-busy");
      }
    });
    // A link leads to another page of the dashboard, which the dialog would cover.
    dialog.addEventListener("click", (event) => event.target instanceof Element && event.target.closest("a[href^='#']") && dialog.close());
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(answer);
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

/** Asks for confirmation; with `type`, that text must be typed. */
export async function ask({title, text, type = null, yes, danger = false}) {
  const body = [el("p", {}, text)];
  if (type !== null) {
    const input = el("input", {name: "typed", autocomplete: "off", autocapitalize: "off", spellcheck: "false", required: true});
    body.push(field(`Type ${type} to confirm`, input));
  }
  const answer = await formDialog({
    title,
    body: el("div", {}, body),
    yes,
    danger,
    submit: (data) => {
      if (type !== null && data.get("typed").trim() !== type.trim()) throw new Error("The name does not match. Nothing was deleted.");
      return true;
    },
  });
  return answer === true;
}

/** Edits name, description and memo of a workspace. Returns the changed fields, or null. */
export function edit(workspace) {
  const body = el(
    "div",
    {},
    field("Name", el("input", {name: "name", value: workspace.name, required: true, maxlength: 255, autocomplete: "off"})),
    field("Description", el("input", {name: "description", value: workspace.description, autocomplete: "off"})),
    field("Memo", el("textarea", {name: "memo", rows: 4}, workspace.memo), "A note for yourself."),
  );
  return formDialog({
    title: `Edit ${workspace.name}`,
    body,
    yes: "Save",
    submit: (data) => {
      const changes = {};
      for (const name of ["name", "description", "memo"]) {
        if (data.get(name) !== workspace[name]) changes[name] = data.get(name);
      }
      return Object.keys(changes).length ? changes : null;
    },
  });
}

/** Duplicates a workspace with its files. Returns the new workspace, or null. */
export function duplicate(workspace) {
  const start = el("input", {type: "checkbox", name: "start", id: freshId("start"), checked: true});
  const body = el(
    "div",
    {},
    el("p", {}, `The files of ${workspace.name} are copied; it stays as it is.`),
    field("Name", el("input", {name: "name", value: `${workspace.name} copy`.slice(0, 255), required: true, maxlength: 255, autocomplete: "off"})),
    el("div", {class: "check"}, start, el("label", {for: start.id}, "Start it now")),
  );
  return formDialog({
    title: `Duplicate ${workspace.name}`,
    body,
    yes: "Duplicate",
    submit: (data) => post(`workspaces/${workspace.id}:duplicate`, {name: data.get("name"), start: data.get("start") === "on"}),
  });
}
