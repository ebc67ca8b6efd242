// The actions on a workspace: which are allowed, and running them, with errors shown to the user.

import {patch, post, remove} from "./api.js";
import {ask, duplicate, edit} from "./dialogs.js";
import * as store from "./store.js";
import {state} from "./store.js";
import {failed, said} from "./toasts.js";
import {recover} from "./views/recover.js";
import {updateTemplate} from "./views/template_update.js";
import {ago, duration} from "./words.js";

/** Whether the server currently allows the action. It sends this with every workspace. */
export const allows = (ws, action) => ws.allowed_actions.includes(action);
// A workspace that was never started has an empty archive, which is not the user's.
const archived = (ws) => ws.phase === "ARCHIVED" && ws.last_access_at !== null;

/**
 * Every action: its name on the server (`name`, else its key), its `label`, and what it does (`run` returns a workspace or
 * null).
 */
export const ACTIONS = {
  start: {
    label: (ws) => (archived(ws) ? "Restore" : ws.status === "ERROR" ? "Try again" : "Start"),
    run: (ws) => post(`workspaces/${ws.id}:start`),
  },
  keep: {
    name: "keep_running",
    label: () => "Keep running",
    run: (ws) => patch(`workspaces/${ws.id}`, {desired_state: "RUNNING"}),
  },
  cancel: {
    label: (ws) => (ws.operation === "ARCHIVING" ? "Cancel archiving" : ws.operation === "RESTORING" ? "Cancel restoring" : "Cancel start"),
    run: (ws) => post(`workspaces/${ws.id}:cancel`),
  },
  stop: {
    label: () => "Stop",
    run: (ws) => post(`workspaces/${ws.id}:stop`),
  },
  archive: {
    label: () => "Archive",
    run: (ws) => post(`workspaces/${ws.id}:archive`),
  },
  recover: {
    label: () => "Recover",
    run: recover,
  },
  update: {
    label: () => "Update template",
    offered: (ws) => ws.template?.update_available === true,
    run: updateTemplate,
  },
  duplicate: {
    label: () => "Duplicate",
    run: async (ws) => {
      const copy = await duplicate(ws);
      if (copy) {
        store.put(copy);
        said(`${copy.name} is being made with the files of ${ws.name}.`);
      }
      return null;
    },
  },
  continue: {
    name: "continue_from_archive",
    label: (ws) => `Continue from the last archive (${ago(ws.last_archive_at, Date.now())})`,
    run: async (ws) => {
      const text = `A new workspace is created from the archive. What was written since stays in ${ws.name}, which is stopped when its node is back.`;
      if (!(await ask({title: "Continue from the last archive?", text, yes: "Continue"}))) return null;
      const made = await post(`workspaces/${ws.id}:continue-from-archive`);
      store.put(made);
      said(`${made.name} is being restored.`);
      return null;
    },
  },
  edit: {
    label: () => "Edit",
    run: async (ws) => {
      const changes = await edit(ws);
      return changes ? patch(`workspaces/${ws.id}`, changes) : null;
    },
  },
  delete: {
    name: "force_delete",
    label: () => "Delete",
    danger: true,
    run: async (ws) => {
      if (!(await confirmDelete(ws))) return null;
      await remove(`workspaces/${ws.id}${allows(ws, "delete") ? "" : "?force=true"}`);
      said(`${ws.name} is being deleted.`);
      return null;
    },
  },
};

export const isOffered = (key, ws) => ACTIONS[key].offered?.(ws) ?? allows(ws, ACTIONS[key].name ?? key);

function confirmDelete(ws) {
  const window_ = duration(state.about?.deleted_retention_seconds ?? 86400);
  const first = allows(ws, "delete") ? "Its files are archived" : "It is stopped, its files are archived";
  return ask({
    title: `Delete ${ws.name}?`,
    text: `${first}, and for ${window_} an administrator can undelete it. After that it is gone for good.`,
    type: ws.name,
    yes: "Delete",
    danger: true,
  });
}

/** Runs an action from a button: busy until the response; a failure is always shown. */
export async function perform(name, workspace, button = null) {
  if (button) button.setAttribute("aria-busy", "true");
  try {
    const updated = await ACTIONS[name].run(workspace);
    if (updated) {
      store.putIfKnown(updated);
      document.dispatchEvent(new CustomEvent("workspace-answer", {detail: updated}));
    }
    return updated;
  } catch (error) {
    failed(error, `${ACTIONS[name].label(workspace)}: ${workspace.name}`);
    return null;
  } finally {
    button?.removeAttribute("aria-busy");
  }
}

// Maps the `action` parameter of such a link to an action.
const LINK_ACTIONS = {start: "start", restore: "start", stop: "stop"};
const QUESTIONS = {
  start: (ws) => (archived(ws) ? `Restore ${ws.name} from its archive and start it?` : `Start ${ws.name}?`),
  stop: (ws) => `Stop ${ws.name}? Its files stay; running programs end.`,
};

/** A link from a workspace's page (`?action=start`) never acts without confirmation. */
export async function confirmLinkAction(action, workspace) {
  const name = LINK_ACTIONS[action];
  if (!name) return;
  if (!isOffered(name, workspace)) {
    said(`${workspace.name}: there is nothing to ${action} right now.`);
    return;
  }
  const label = ACTIONS[name].label(workspace);
  if (await ask({title: label, text: QUESTIONS[name](workspace), yes: label})) await perform(name, workspace);
}
