// The daemon, its clients, the index, and what doctor says.

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

export function show(state, workspace) {
  const view = state.workspaces.find((other) => other.root === workspace);
  byId("index-table").replaceChildren(table(null, indexRows(view)));
  byId("sessions-table").replaceChildren(
    state.sessions.length
      ? table(["Client", "Workspaces", "Lease", "Last request"], state.sessions.map((session) =>
        row(session.client || "HTTP client", session.roots.join(", "), session.leased ? (session.connected ? "connected" : "held") : "expired",
          ago(session.last_request_ts))))
      : element("p", {}, "No client is connected."),
  );
  const { daemon } = state;
  byId("daemon-table").replaceChildren(table(null, [
    row("Version", daemon.version), row("Process", daemon.pid), row("Started", ago(daemon.start_ts)),
    row("Ports", `${daemon.port} (clients), ${daemon.http_port} (this page)`),
    row("State", daemon.draining ? "draining: a newer daemon has taken over" : "serving"),
    row("Workspaces open", state.workspaces.map((other) => other.root).join(", ") || "none"),
    ...(state.others ?? []).map((other) => row(`Also running`, `${other.version}, process ${other.pid}${other.draining ? ", draining" : ""}`)),
  ]));
}

const WORDS = { ok: "fine", warning: "note", error: "wrong" };
const CLASSES = { ok: "good", warning: "note", error: "bad" };

export async function examine(workspace) {
  const target = byId("doctor-table");
  try {
    const answer = await getFrom(workspace, "doctor", {});
    target.replaceChildren(table(["About", "State", "What was found"], answer.checks.map((check) =>
      row(check.name, element("td", { className: CLASSES[check.level] }, WORDS[check.level]),
        check.level === "ok" || !check.mend ? check.detail : `${check.detail}. What to do: ${check.mend}`))));
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
