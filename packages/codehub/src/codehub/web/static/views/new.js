// A link such as /new?repo=URL: opens the filled-in dialog over the list of workspaces. Nothing is created without a click.

import {createWorkspace} from "./create.js";
import {workspacesView} from "./workspaces.js";

const KEYS = ["repo", "ref", "path", "name", "template"];

export function newView(query) {
  const prefilled = Object.fromEntries(KEYS.filter((key) => query.get(key)).map((key) => [key, query.get(key)]));
  // Shown once: reloading the page or returning to it must not open the dialog again.
  history.replaceState(null, "", "#/");
  queueMicrotask(() => createWorkspace(prefilled));
  return workspacesView();
}
