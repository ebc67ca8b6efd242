// The terminal's page, in its own tab or as a panel in the dashboard: lists the terminals and shows one.

import {get, onSessionEnd, post, remove} from "../api.js";
import {el, setAttribute, setHidden, setText} from "../dom.js";
import {makeScreen} from "./screen.js";

const WORKSPACE = document.body.dataset.workspace;
const IN_PANEL = "panel" in document.body.dataset;
const API = `workspaces/${WORKSPACE}`;
const RETRY_MS = 1_000;
const MOST_PROBLEMS = 4;
const KEYS = [["Esc", "\x1b"], ["Tab", "\t"], ["↑", "\x1b[A"], ["↓", "\x1b[B"], ["←", "\x1b[D"], ["→", "\x1b[C"]];
const KEY_NAMES = {"↑": "Up", "↓": "Down", "←": "Left", "→": "Right"};

const tabs = el("nav", {class: "terminal-tabs", "aria-label": "Terminals"});
const fresh = el("button", {type: "button", onclick: () => openNew(), "aria-label": "New terminal"}, "+ New");
const status = el("span", {class: "badge", role: "status"}, "Loading");
const home = el("a", {href: `/#/workspaces/${WORKSPACE}`, class: "brand"}, el("span", {class: "mark", "aria-hidden": "true"}), el("span", {class: "clip"}, "Workspace"));
const full = el("a", {class: "button", target: "_blank", rel: "noopener", href: location.pathname}, "Full page");
const note = el("div", {class: "terminal-note", role: "alert", hidden: true});
const place = el("div", {class: "terminal-place"});
const control = el("button", {type: "button", "aria-pressed": "false", onclick: holdControl}, "Ctrl");
const keys = el("div", {class: "terminal-keys", role: "toolbar", "aria-label": "Keys"}, control, KEYS.map(([label, sequence]) => el("button", {type: "button", "aria-label": KEY_NAMES[label] ?? label, onclick: () => screen?.press(sequence)}, label)));

let screen = null;
let current = null;
let items = [];

const chosen = () => location.hash.replace(/^#/, "");
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function holdControl() {
  const held = screen?.holdControl(() => setAttribute(control, "aria-pressed", "false"));
  setAttribute(control, "aria-pressed", held ? "true" : "false");
}

function say(state, detail = null, reason = "") {
  if (state === "tooLong") return explain("A megabyte at most can be pasted at once, and nothing was. Upload it as a file instead.", ["OK", dismiss]);
  const [label, tone] = {
    loading: ["Loading", "busy"],
    installing: ["Installing", "busy"],
    waking: ["Waking", "busy"],
    connecting: ["Connecting", "busy"],
    connected: ["Connected", "good"],
    away: ["Reconnecting", "busy"],
    ended: ["Ended", "calm"],
    refused: ["Closed", "bad"],
    failed: ["Failed", "bad"],
  }[state];
  setText(status, label);
  setAttribute(status, "data-tone", tone);
  setAttribute(document.body, "data-state", state);
  if (state === "ended") explain(detail === null ? "The program has ended." : `The program has ended with exit code ${detail}.`, ["New terminal", openNew]);
  else if (state === "refused") refused(detail, reason);
  else if (state === "connected") setHidden(note, true);
  if (state === "ended" || state === "refused") refresh();
}

function refused(code, reason) {
  if (code === 401) return explain("Your session has ended.", ["Sign in", signIn]);
  if (code === 404) return explain("This terminal has ended.", ["New terminal", openNew]);
  if (code === 409) return explain("The workspace is asleep, and its terminals have ended.", ["Wake it and open a terminal", openNew]);
  explain(reason || "The terminal cannot be shown.", ["Try again", () => show(current)]);
}

function explain(text, action = null) {
  note.replaceChildren(el("p", {}, text), action ? el("button", {type: "button", class: "primary", onclick: action[1]}, action[0]) : "");
  setHidden(note, false);
}

function dismiss() {
  setHidden(note, true);
  screen.terminal.focus();
}

const signIn = () => {
  if (IN_PANEL) parent.location.reload();
  else location.assign(`/?next=${encodeURIComponent(location.pathname + location.hash)}`);
};

/** Installs xterm.js on first use, which takes seconds and needs a network. */
async function program() {
  for (let problems = 0; ; ) {
    const found = await post("terminal-program");
    if (found.ready) return found.version;
    // `codehub up` may be installing it right now.
    if (found.problem && ++problems === MOST_PROBLEMS) throw new Error(found.problem);
    say("installing");
    explain("The terminal is being installed. This happens once and takes a few seconds.");
    await sleep(RETRY_MS);
  }
}

async function refresh() {
  try {
    items = (await get(`${API}/terminals?wake=0`)).items;
  } catch (error) {
    if (error.status !== 409) throw error;
    items = [];
  }
  if (current && !items.some((item) => item.id === current) && document.body.dataset.state === "connected") items.push({id: current, command: "…"});
  tabs.replaceChildren(...items.map(tab));
}

function tab(item, index) {
  const name = item.command.split(" ")[0].split("/").pop().replace(/^-/, "") || "terminal";
  const label = `${index + 1}: ${name}`;
  return el(
    "span",
    {class: "terminal-tab", "data-current": item.id === current},
    el("button", {type: "button", "aria-current": item.id === current ? "true" : null, title: item.command, onclick: () => show(item.id)}, label),
    el("button", {type: "button", class: "plain", "aria-label": `Close terminal ${label}`, onclick: () => close(item.id)}, "✕"),
  );
}

function show(id) {
  current = id;
  setHidden(note, true);
  if (chosen() !== id) history.replaceState(null, "", `${location.search}#${id}`);
  setAttribute(full, "href", `${location.pathname}#${id}`);
  screen.show(`${API}/terminals/${encodeURIComponent(id)}`);
  tabs.replaceChildren(...items.map(tab));
}

async function openNew() {
  setHidden(note, true);
  say("waking");
  fresh.disabled = true;
  const slow = setTimeout(() => explain("The workspace is waking up. The terminal opens when it runs."), 1500);
  try {
    const made = await post(`${API}/terminals`, screen.room());
    items.push(made);
    show(made.id);
  } catch (error) {
    say("failed");
    explain(error.message, ["Try again", openNew]);
  } finally {
    clearTimeout(slow);
    fresh.disabled = false;
  }
}

async function close(id) {
  try {
    await remove(`${API}/terminals/${encodeURIComponent(id)}`);
  } catch (error) {
    if (error.status !== 404 && error.status !== 409) return explain(error.message);
  }
  items = items.filter((item) => item.id !== id);
  if (id === current) {
    current = null;
    screen.clear();
    history.replaceState(null, "", location.search || location.pathname);
    if (items.length) return show(items.at(-1).id);
    say("ended");
    explain("No terminal is open.", ["New terminal", openNew]);
  }
  tabs.replaceChildren(...items.map(tab));
}

async function begin() {
  document.body.replaceChildren(
    el("header", {class: "terminal-bar"}, IN_PANEL ? null : home, tabs, fresh, el("span", {class: "terminal-end"}, status, IN_PANEL ? full : null)),
    el("main", {class: "terminal-main"}, place, note),
    keys,
  );
  try {
    const [workspace, version] = await Promise.all([get(API), program()]);
    document.title = `Terminal · ${workspace.name} · CodeHub`;
    setText(home.lastChild, workspace.name);
    document.head.append(el("link", {rel: "stylesheet", href: `/xterm/${version}/xterm.css`}));
    screen = await makeScreen(place, version, say, () => fresh.focus());
    await refresh();
  } catch (error) {
    say("failed");
    if (error.status === 401) return explain("You are signed out.", ["Sign in", signIn]);
    return explain(error.message, ["Try again", () => location.reload()]);
  }
  setHidden(note, true);
  const wanted = chosen();
  // A URL that names a terminal shows that one, even if it has ended.
  if (wanted) show(wanted);
  else if (items.length) show(items.at(-1).id);
  else await openNew();
}

onSessionEnd(() => explain("Your session has ended.", ["Sign in", signIn]));
addEventListener("hashchange", () => chosen() && chosen() !== current && show(chosen()));
begin();
