// Processes: those started by exec, the open terminals, and what keeps the workspace awake.

import {get, post, remove, text} from "../../api.js";
import {ask, showDialog} from "../../dialogs.js";
import {el, setHidden, setText} from "../../dom.js";
import * as store from "../../store.js";
import {failed} from "../../toasts.js";
import {awakeWords, clock, moment} from "../../words.js";

const HOURS = [1, 4, 12];
const SHOWN_OUTPUT = 20_000;

export function processesPage({id, current}) {
  const reason = el("p", {role: "status"});
  const end = el("button", {type: "button", onclick: () => keepAwake(null)}, "Let it sleep");
  const awake = el(
    "section",
    {class: "card"},
    el("h2", {}, "Awake"),
    reason,
    el("div", {class: "row"}, HOURS.map((hours) => el("button", {type: "button", onclick: () => keepAwake(hours)}, `Keep awake ${hours} h`)), end),
  );
  const terminals = el("ul", {class: "doors"});
  const processes = el("ul", {class: "doors"});
  const node = el(
    "div",
    {},
    awake,
    el("section", {class: "card"}, el("h2", {}, "Terminals"), terminals),
    el("section", {class: "card"}, el("h2", {}, "Started by exec"), processes),
  );

  async function keepAwake(hours) {
    try {
      const until = hours === null ? null : new Date(Date.now() + hours * 3_600_000).toISOString();
      const updated = await post(`workspaces/${id}:keep-awake`, {until});
      store.putIfKnown(updated);
      document.dispatchEvent(new CustomEvent("workspace-answer", {detail: updated}));
    } catch (error) {
      failed(error, "Keep awake");
    }
  }

  async function signal(process, name, words) {
    if (!(await ask({title: `${words} this process?`, text: process.command, yes: words, danger: true}))) return;
    try {
      await post(`workspaces/${id}/processes/${encodeURIComponent(process.id)}/signal`, {signal: name});
    } catch (error) {
      failed(error, words);
    }
    await refresh();
  }

  async function showOutput(process) {
    try {
      const output = await text(`workspaces/${id}/processes/${encodeURIComponent(process.id)}/output?wake=0`);
      const shown = output.length > SHOWN_OUTPUT ? `…${output.slice(-SHOWN_OUTPUT)}` : output;
      await showDialog({title: "Output", body: el("div", {}, el("p", {}, el("code", {}, process.command)), el("pre", {class: "logs", tabindex: "0"}, shown || "It has written nothing.")), close: "Close"});
    } catch (error) {
      failed(error, "Output");
    }
  }

  function processRow(process) {
    const runs = process.state === "running";
    const state = runs ? `${Math.round(process.cpu_percent)} % of a core` : `ended${process.exit_code === null ? "" : ` with ${process.exit_code}`}`;
    return el(
      "li",
      {class: "row"},
      el("span", {class: "badge", "data-tone": runs ? "good" : "calm"}, runs ? "Running" : "Ended"),
      el("code", {class: "grow"}, process.command),
      el("span", {class: "quiet"}, `${state}, started ${moment(process.started_at, Date.now())}`),
      el("button", {type: "button", "aria-label": `Output of ${process.command}`, onclick: () => showOutput(process)}, "Output"),
      runs ? el("button", {type: "button", "aria-label": `Stop ${process.command}`, onclick: () => signal(process, "TERM", "Stop")}, "Stop") : null,
      runs ? el("button", {type: "button", class: "danger", "aria-label": `Kill ${process.command}`, onclick: () => signal(process, "KILL", "Kill")}, "Kill") : null,
    );
  }

  const terminalRow = (terminal) =>
    el(
      "li",
      {class: "row"},
      el("code", {class: "grow"}, terminal.command),
      el("span", {class: "quiet"}, `${terminal.viewers === 1 ? "1 viewer" : `${terminal.viewers} viewers`}, started ${moment(terminal.started_at, Date.now())}`),
      el("a", {class: "button", target: "_blank", rel: "noopener", href: `/terminal/${id}#${terminal.id}`}, "Show"),
      el("button", {type: "button", class: "danger", "aria-label": `Close the terminal ${terminal.command}`, onclick: () => closeTerminal(terminal)}, "Close"),
    );

  async function closeTerminal(terminal) {
    if (!(await ask({title: "Close this terminal?", text: "Its programs are ended.", yes: "Close", danger: true}))) return;
    try {
      await remove(`workspaces/${id}/terminals/${encodeURIComponent(terminal.id)}`);
    } catch (error) {
      failed(error, "Close the terminal");
    }
    await refresh();
  }

  async function fill(list, path, row, empty) {
    try {
      const {items} = await get(`workspaces/${id}/${path}?wake=0`);
      const seen = JSON.stringify(items);
      if (list.dataset.seen === seen) return;
      list.dataset.seen = seen;
      list.replaceChildren(...(items.length ? items.map(row) : [el("li", {class: "quiet"}, empty)]));
    } catch (error) {
      delete list.dataset.seen;
      list.replaceChildren(el("li", {class: "quiet"}, error.message));
    }
  }

  async function refresh() {
    await Promise.all([
      fill(terminals, "terminals", terminalRow, "No terminal is open."),
      fill(processes, "processes", processRow, "Nothing was started by exec."),
    ]);
  }

  return {
    node,
    refresh,
    update() {
      const workspace = current();
      const until = workspace.keep_awake_until && Date.parse(workspace.keep_awake_until) > Date.now();
      setText(reason, awakeWords(workspace, Date.now()) || (workspace.sleeps_at ? `Nothing keeps it awake. Unless used, it sleeps at ${clock(workspace.sleeps_at)}.` : "It does not go to sleep by itself."));
      setHidden(end, !until, reason);
    },
  };
}
