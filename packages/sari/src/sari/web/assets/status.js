// The daemon, its clients, the index, and doctor's findings.

import { get, getFrom, post } from "./api.js";
import { byId, element, row, table } from "./dom.js";

const ago = (seconds) => {
  const past = Math.max(0, Date.now() / 1000 - seconds);
  if (past < 90) return `${Math.round(past)} s ago`;
  return past < 5400 ? `${Math.round(past / 60)} min ago` : `${Math.round(past / 3600)} h ago`;
};
const number = (value) => Number(value ?? 0).toLocaleString("en");
const size = (bytes) => (bytes > 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${Math.round(bytes / 1000)} kB`);

export const stateOf = (status) => {
  if (!status) return "not open";
  if (status.state === "ready") return `ready · ${number(status.indexed || status.files)} files`;
  return status.files ? `${status.state} · ${number(status.indexed)} of ${number(status.files)} files` : String(status.state);
};

function indexRows(view) {
  if (!view) return [row("This workspace is not open. A search opens it.")];
  const { status } = view;
  const rows = [row("Root", view.root), row("State", stateOf(status))];
  if (status.files) {
    const bar = element("progress", { max: status.files, value: status.indexed, "aria-label": "Indexed" });
    rows.push(row("Indexed", element("td", {}, bar)));
  }
  if (status.pending) rows.push(row("Waiting", `${number(status.pending)} files`));
  if (status.watching) rows.push(row("Watching", status.watching));
  if (status.index_bytes) rows.push(row("Index size", size(status.index_bytes)));
  rows.push(row("Sessions", view.sessions), row("Calls running", view.running_calls), row("Last used", ago(view.last_active_ts)));
  return rows;
}

function sessionRows(sessions) {
  return sessions.map((session) =>
    row(session.client || "HTTP client", session.roots.join(", ") || "none yet",
      session.leased ? (session.connected ? "connected" : "by HTTP") : "silent", ago(session.last_request_ts)));
}

// Every daemon in the registry. There are several while one replaces another, and beside a sari before version 3.
function daemonRows({ daemon, daemons }) {
  return daemons.map((one) =>
    row(one.version, one.pid, one.this ? `${one.port} · HTTP ${daemon.http_port}` : one.port,
      one.draining ? "being replaced" : "serving", ago(one.start_ts), one.workspaces.length));
}

export function show(state, workspace) {
  const view = state.workspaces.find((other) => other.root === workspace);
  byId("index-table").replaceChildren(table(null, indexRows(view)));
  byId("sessions-table").replaceChildren(
    state.sessions.length
      ? table(["Client", "Workspaces", "State", "Last request"], sessionRows(state.sessions))
      : element("p", {}, "No client is connected."),
  );
  byId("daemon-table").replaceChildren(table(["Version", "Process", "Ports", "State", "Started", "Workspaces"], daemonRows(state)));
}

// The thin progress bar under the header, shown while something is in progress.
export function progress(status) {
  const bar = byId("index-progress");
  bar.hidden = !status || status.state === "ready";
  if (!bar.hidden && status.files) Object.assign(bar, { max: status.files, value: status.indexed });
  else bar.removeAttribute("value");
}

const LEVELS = { error: ["wrong", "bad"], warning: ["note", "note"], ok: ["fine", "good"] };

function finding(check) {
  const [word, className] = LEVELS[check.level];
  return element(
    "li", { className },
    element("span", { className: "level" }, word),
    element("div", {}, element("span", { className: "about" }, check.name), check.detail,
      check.level !== "ok" && check.fix ? element("p", { className: "fix" }, check.fix) : null),
  );
}

const list = (checks) => element("ul", { className: "findings" }, ...checks.map(finding));

export async function runChecks(workspace) {
  const target = byId("doctor-table");
  target.replaceChildren(element("p", {}, "Looking…"));
  try {
    const { checks } = await getFrom(workspace, "doctor", {});
    const fine = checks.filter((check) => check.level === "ok");
    const wrong = checks.filter((check) => check.level === "error");
    const notes = checks.filter((check) => check.level === "warning");
    const verdict = wrong.length ? `${wrong.length} of ${checks.length} checks found something wrong.` : "Nothing is wrong.";
    target.replaceChildren(
      element("p", { className: wrong.length ? "verdict bad" : "verdict good" }, verdict),
      ...(wrong.length + notes.length ? [list([...wrong, ...notes])] : []),
      element("details", {}, element("summary", {}, `${fine.length} checks are fine`), list(fine)),
    );
  } catch (error) {
    target.replaceChildren(element("p", { className: "failed" }, error.message));
  }
}

export async function rescan(workspace) {
  const say = byId("rescan-say");
  say.textContent = "Comparing…";
  try {
    const answer = await post("rescan", { workspace });
    say.textContent = `${number(answer.changed)} of ${number(answer.files)} files had changed.`;
  } catch (error) {
    say.textContent = error.message;
  }
}

export const read = () => get("status");
