// A link such as /new?repo=URL: the filled-in dialog over one's workspaces. Nothing is made without a click.

import {createWorkspace} from "./create.js";
import {workspacesView} from "./workspaces.js";

const KEYS = ["repo", "ref", "path", "name", "template"];

export function newView(query) {
  const asked = Object.fromEntries(KEYS.filter((key) => query.get(key)).map((key) => [key, query.get(key)]));
  // Asked once: reloading the page or coming back to it must not ask again.
  history.replaceState(null, "", "#/");
  queueMicrotask(() => createWorkspace(asked));
  return workspacesView();
}
