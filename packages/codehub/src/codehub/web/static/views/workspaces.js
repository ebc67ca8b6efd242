// The user's workspaces, live. The frame is shown immediately; the cards arrive with the stream's first snapshot.

import {get} from "../api.js";
import {el, setHidden, setText} from "../dom.js";
import * as store from "../store.js";
import {state} from "../store.js";
import {nextRest} from "../words.js";
import {cardList} from "./card.js";
import {createWorkspace} from "./create.js";

const GROUPS = {
  all: () => true,
  running: (ws) => ["RUNNING", "PROVISIONING", "STOPPING"].includes(ws.status),
  resting: (ws) => ["CREATED", "STOPPED"].includes(ws.status),
  error: (ws) => ws.status === "ERROR",
};
const TICK_MS = 15_000;
// A last-use time that is overdue is fetched again, but at most this often per workspace.
const ASK_AGAIN_MS = 60_000;

/**
 * Running workspaces first, then by last use. Sorted again only if one starts, stops, appears or disappears, so that cards
 * do not jump.
 */
function ordering() {
  let known = "";
  let ranks = new Map();
  const used = (ws) => ws.last_access_at ?? ws.created_at;
  return (items) => {
    const now = items.map((ws) => `${ws.id}${GROUPS.running(ws) ? "+" : "-"}`).sort().join();
    if (now !== known) {
      known = now;
      const sorted = [...items].sort((a, b) => Number(GROUPS.running(b)) - Number(GROUPS.running(a)) || (used(a) < used(b) ? 1 : -1));
      ranks = new Map(sorted.map((ws, rank) => [ws.id, rank]));
    }
    return items.sort((a, b) => ranks.get(a.id) - ranks.get(b.id));
  };
}

export function workspacesView() {
  const order = ordering();
  const search = el("input", {type: "search", placeholder: "Find by name or description", "aria-label": "Find by name or description", "aria-keyshortcuts": "/", title: "Press / to search", oninput: update});
  const group = el(
    "select",
    {"aria-label": "Which workspaces", onchange: update},
    el("option", {value: "all"}, "All"),
    el("option", {value: "running"}, "Running"),
    el("option", {value: "resting"}, "Not running"),
    el("option", {value: "error"}, "Error"),
  );
  const count = el("p", {class: "quiet", role: "status"});
  const empty = el(
    "section",
    {class: "empty", hidden: true},
    el("h2", {}, "No workspaces yet"),
    el("p", {}, "A workspace is a development environment in your browser. It goes to sleep when you do not use it."),
    el("button", {type: "button", class: "primary", onclick: () => createWorkspace()}, "Create your first workspace"),
  );
  const filters = el("div", {class: "row filters"}, search, group, count);
  const list = cardList("My workspaces", group);
  const node = el(
    "section",
    {},
    el(
      "div",
      {class: "row head"},
      el("h1", {}, "Workspaces"),
      el("button", {type: "button", class: "primary", "aria-keyshortcuts": "n", title: "Press n", onclick: () => createWorkspace()}, "New workspace"),
    ),
    filters,
    empty,
    list.node,
  );
  const refreshedAt = new Map();

  function update() {
    const mine = order([...state.workspaces.values()]);
    const text = search.value.trim().toLowerCase();
    const found = (ws) => !text || `${ws.name} ${ws.description} ${ws.memo}`.toLowerCase().includes(text);
    const shown = new Set(mine.filter((ws) => GROUPS[group.value](ws) && found(ws)));
    list.update(mine, (ws) => shown.has(ws));
    const none = state.loaded && mine.length === 0;
    setHidden(empty, !none);
    setHidden(filters, none);
    setText(count, countWords(shown.size, mine.length));
  }

  function countWords(shown, all) {
    if (!state.loaded) return "Loading…";
    return shown === all ? `${all} in all` : `${shown} of ${all}`;
  }

  /** Renders relative times again, and fetches the last use of workspaces that should be asleep by now. */
  function tick() {
    const now = Date.now();
    const running = [...state.workspaces.values()].filter((ws) => ws.phase === "RUNNING" || ws.phase === "STANDBY");
    list.refresh(running);
    if (document.hidden) return;
    for (const ws of running) {
      const rest = nextRest(ws, now);
      if (rest && rest.seconds < 0 && now - (refreshedAt.get(ws.id) ?? 0) > ASK_AGAIN_MS) {
        refreshedAt.set(ws.id, now);
        get(`workspaces/${ws.id}`).then(store.put, () => {});
      }
    }
  }

  /** "/" searches and "n" creates a workspace, unless the user is typing or a dialog is open. */
  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
    if (document.querySelector("dialog[open]")) return;
    if (event.key === "/" && !filters.hidden) search.focus();
    else if (event.key === "n") createWorkspace();
    else return;
    event.preventDefault();
  }

  document.addEventListener("keydown", onKey);
  const stop = store.subscribe(update);
  const timer = setInterval(tick, TICK_MS);
  update();
  return {
    title: "Workspaces",
    node,
    leave() {
      stop();
      clearInterval(timer);
      document.removeEventListener("keydown", onKey);
    },
  };
}
