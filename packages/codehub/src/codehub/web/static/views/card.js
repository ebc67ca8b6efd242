// One workspace in the list. Made once, updated in place, so that focus and scroll stay where they are.

import {ACTIONS, allows, isOffered, perform} from "../actions.js";
import {el, reconcile, setAttribute, setHidden, setText} from "../dom.js";
import {describe, percent} from "../words.js";

/** The buttons of `names`, shown as the workspace's state allows. */
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

/** Badge, sentence, progress bar and error box of a workspace, anywhere it is shown. */
export function statusBlock() {
  const badge = el("span", {class: "badge"});
  const line = el("span", {class: "line"});
  const progress = el("progress", {max: 100, "aria-label": "Progress", hidden: true});
  const todo = el("p", {class: "todo", hidden: true});
  return {
    nodes: [el("p", {class: "status"}, badge, " ", line), progress, todo],
    update(workspace) {
      const said = describe(workspace, Date.now());
      setText(badge, said.label);
      setAttribute(badge, "data-tone", said.tone);
      setText(line, said.line);
      const done = percent(workspace.progress);
      setHidden(progress, workspace.operation === "NONE");
      if (done === null) progress.removeAttribute("value");
      else progress.value = done;
      setHidden(todo, !workspace.error);
      if (workspace.error) setText(todo, workspace.error.remedy);
    },
  };
}

function card(first) {
  let workspace = first;
  const title = el("a", {href: `#/workspaces/${first.id}`});
  const status = statusBlock();
  const description = el("p", {class: "quiet clamp"});
  const open = el("a", {class: "button primary", target: "_blank", rel: "noopener"}, "Open");
  const buttons = actionButtons(["start", "keep", "cancel", "stop", "archive", "recover", "continue"], () => workspace, title);
  const node = el(
    "li",
    {class: "card", "data-id": first.id},
    el("h2", {}, title),
    description,
    status.nodes,
    el("div", {class: "row actions"}, open, buttons.nodes),
  );
  return {
    node,
    update(next) {
      workspace = next;
      setText(title, next.name);
      setText(description, next.description || next.image_ref);
      setAttribute(node, "data-status", next.status);
      setAttribute(open, "href", next.url);
      setAttribute(open, "aria-label", `Open ${next.name} in a new tab`);
      setHidden(open, !allows(next, "open"), title);
      status.update(next);
      buttons.update(next);
    },
  };
}

// So many new cards are made at once, some screenfuls: a thousand in one go would hold the page for a moment one feels.
const SLICE = 100;

/**
 * A list of cards that follows its items; those that are not to be shown are there, hidden, and back at once.
 * The focus in one that is hidden goes to `focusInstead`.
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
