// One workspace in the list. Created once and updated in place, so that focus and scroll position are kept.

import {ACTIONS, allows, isOffered, perform} from "../actions.js";
import {el, reconcile, setAttribute, setHidden, setText} from "../dom.js";
import {state} from "../store.js";
import {describe, diskWords, percent, scheduleWords} from "../words.js";
import {setupLine} from "./setup.js";

/** The buttons of `names`, shown if the workspace's state allows them. */
export function actionButtons(names, current, focusInstead) {
  const buttons = names.map((name) => {
    const button = el("button", {
      type: "button",
      class: ACTIONS[name].danger ? "danger" : null,
      "data-action": name,
      onclick: () => {
        if (!button.hasAttribute("aria-busy")) perform(name, current(), button);
      },
    });
    return [name, button];
  });
  return {
    nodes: buttons.map(([, button]) => button),
    update(workspace) {
      for (const [name, button] of buttons) {
        const label = ACTIONS[name].label(workspace);
        setText(button, label);
        setAttribute(button, "aria-label", `${label} ${workspace.name}`);
        setHidden(button, !isOffered(name, workspace), focusInstead);
      }
    },
  };
}

/** Badge, sentence, progress bar and error box of a workspace, for all places that show it. */
export function statusBlock() {
  const badge = el("span", {class: "badge"});
  const line = el("span", {class: "line"});
  const progress = el("progress", {max: 100, "aria-label": "Progress", hidden: true});
  const cause = el("span", {class: "cause"});
  const remedy = el("span", {});
  const command = el("code", {});
  const todo = el("p", {class: "todo", hidden: true}, cause, remedy, " ", command);
  const warning = el("p", {class: "warning", hidden: true});
  return {
    nodes: [el("p", {class: "status"}, badge, " ", line), progress, todo, warning],
    update(workspace) {
      const said = describe(workspace, Date.now());
      setText(badge, said.label);
      setAttribute(badge, "data-tone", said.tone);
      setText(line, said.line);
      const done = percent(workspace.progress);
      setHidden(progress, workspace.operation === "NONE");
      if (done === null) progress.removeAttribute("value");
      else progress.value = done;
      setText(warning, workspace.disk_warning ?? "");
      setHidden(warning, !workspace.disk_warning);
      setHidden(todo, !workspace.error);
      if (!workspace.error) return;
      setText(cause, workspace.error.detail ?? "");
      setHidden(cause, !workspace.error.detail);
      setText(remedy, workspace.error.remedy);
      setText(command, workspace.error.command ?? "");
      setHidden(command, !workspace.error.command);
    },
  };
}


/** The two ways to open a workspace in a browser: the IDE, and a terminal. */
export function openers(id) {
  // The same click starts an archived or new workspace; the new tab shows the progress and continues automatically.
  const starts = (ws) => !allows(ws, "open") && allows(ws, "start") && ws.status !== "ERROR" && ws.owner === state.user?.username;
  let current = null;
  const open = el("a", {class: "button primary", target: "_blank", rel: "noopener", onclick: () => current && starts(current) && perform("start", current)}, "Open");
  const terminal = el("a", {class: "button", target: "_blank", rel: "noopener", href: `/terminal/${id}`}, "Terminal");
  return {
    nodes: [open, terminal],
    update(workspace, focusInstead) {
      current = workspace;
      const label = !starts(workspace) ? "Open" : workspace.status === "CREATED" ? "Start and open" : "Restore and open";
      setText(open, label);
      setAttribute(open, "href", workspace.url);
      setAttribute(open, "aria-label", `${label} ${workspace.name} in a new tab`);
      setAttribute(terminal, "aria-label", `Terminal of ${workspace.name} in a new tab`);
      setHidden(open, !allows(workspace, "open") && !starts(workspace), focusInstead);
      setHidden(terminal, !allows(workspace, "open"), focusInstead);
    },
  };
}

function card(first) {
  let workspace = first;
  const title = el("a", {href: `#/workspaces/${first.id}`});
  const status = statusBlock();
  const setup = setupLine(() => workspace);
  const description = el("p", {class: "quiet clamp"});
  const disk = el("p", {class: "quiet disk", hidden: true});
  const schedule = el("p", {class: "quiet schedule", hidden: true});
  const ways = openers(first.id);
  const buttons = actionButtons(["start", "keep", "cancel", "stop", "archive", "recover", "continue", "update"], () => workspace, title);
  const node = el(
    "li",
    {class: "card", "data-id": first.id},
    el("h2", {}, title),
    description,
    status.nodes,
    disk,
    schedule,
    setup.nodes,
    el("div", {class: "row actions"}, ways.nodes, setup.buttons, buttons.nodes),
  );
  return {
    node,
    update(next) {
      workspace = next;
      setText(title, next.name);
      setText(description, next.description || next.template?.name || next.image_ref);
      setAttribute(node, "data-status", next.status);
      ways.update(next, title);
      status.update(next);
      setText(disk, diskWords(next));
      setHidden(disk, !disk.textContent);
      setText(schedule, scheduleWords(next, Date.now()));
      setHidden(schedule, !schedule.textContent);
      setup.update(next);
      buttons.update(next);
    },
  };
}

// How many new cards are created at once, a few screenfuls: a thousand at once would noticeably block the page.
const SLICE = 100;

/**
 * A list of cards that follows its items. Filtered cards stay in the page, hidden, so that they reappear immediately. Focus
 * inside a hidden card moves to `focusInstead`.
 */
export function cardList(label, focusInstead) {
  const components = new Map();
  const node = el("ul", {class: "cards", "aria-label": label});
  let rest = 0;

  function update(items, isShown) {
    clearTimeout(rest);
    const more = reconcile(node, components, items, (item) => item.id, card, SLICE);
    for (const item of items) {
      const made = components.get(item.id);
      if (made) setHidden(made.node, !isShown(item), focusInstead);
    }
    if (more) rest = setTimeout(() => update(items, isShown));
  }

  return {node, update, refresh: (items) => items.forEach((item) => components.get(item.id)?.update(item))};
}
