// One workspace: its state and, in tabs, observations, events, output, and access besides its IDE.

import {ACTIONS, confirmLinkAction, isOffered, perform} from "../actions.js";
import {get} from "../api.js";
import {el, setAttribute, setHidden, setText} from "../dom.js";
import * as store from "../store.js";
import {state} from "../store.js";
import {bytes, clock, conditionWords, diskWords, scheduleWords} from "../words.js";
import {actionButtons, openers, statusBlock} from "./card.js";
import {filesPage} from "./doors/files.js";
import {portsPage} from "./doors/ports.js";
import {processesPage} from "./doors/processes.js";
import {sshPage} from "./doors/ssh.js";
import {terminalPage} from "./doors/terminal.js";
import {setupLine, setupPanel} from "./setup.js";
import {logsPanel, timelinePanel} from "./workspace_panels.js";

const CONDITIONS = {
  "storage.volume_ready": "Home",
  "storage.archive_ready": "Archive",
  "infra.container_ready": "Instance",
  "policy.healthy": "Healthy",
};
const CONDITION_TONES = {True: "good", False: "calm", Unknown: "busy"};
const WANTED = {RUNNING: "running", STANDBY: "asleep", ARCHIVED: "archived", DELETED: "deleted"};
const CONDITION_WORDS = {True: "yes", False: "no", Unknown: "unknown"};
const USAGE_MS = 10_000;
const DOOR_MS = 3_000;
const DOORS = {terminal: terminalPage, files: filesPage, ports: portsPage, processes: processesPage, ssh: sshPage};
const TABS = [["", "Overview"], ["terminal", "Terminal"], ["files", "Files"], ["ports", "Ports"], ["processes", "Processes"], ["ssh", "SSH"]];

/** The tabs below a workspace's state. Only the owner has access, and most tabs need a running workspace. */
function doorPanel(name, id, query, current) {
  const page = DOORS[name]({id, query, current});
  const wake = el("button", {type: "button", class: "primary", onclick: () => perform("start", current(), wake)}, "Start it");
  const why = el("p", {class: "quiet"});
  const asleep = el("section", {class: "card empty", hidden: true}, why, wake);
  let begun = false;

  return {
    node: el("div", {}, asleep, page.node),
    update(workspace) {
      const mine = workspace.owner === state.user?.username;
      const runs = workspace.phase === "RUNNING";
      const usable = mine && (runs || page.worksAsleep);
      setText(why, mine ? "This needs a running workspace." : "Only the owner of a workspace can use this.");
      setHidden(wake, !mine || !isOffered("start", workspace));
      setHidden(asleep, usable);
      setHidden(page.node, !usable);
      if (usable) page.update?.();
      if (usable && !begun) {
        page.begin?.();
        page.refresh?.();
      }
      begun = usable;
    },
    refresh() {
      if (begun && !document.hidden) page.refresh?.();
    },
  };
}

export function workspaceView(query, id, door) {
  let workspace = state.workspaces.get(id) ?? null;
  let gone = false;
  const title = el("h1", {tabindex: "-1"}, workspace?.name ?? "…");
  const status = statusBlock();
  const ways = openers(id);
  const buttons = actionButtons(Object.keys(ACTIONS), () => workspace, title);
  const memo = el("p", {class: "memo", hidden: true});
  const description = el("p", {class: "quiet"});
  const facts = el("dl", {class: "facts"});
  const conditions = el("ul", {class: "conditions"});
  const usage = el("p", {class: "quiet", hidden: true});
  const timeline = timelinePanel(id);
  const logs = logsPanel(id);
  const setup = setupLine(() => workspace);
  const setupSteps = setupPanel(id);
  const panel = door ? doorPanel(door, id, query, () => workspace) : null;
  const tabs = el(
    "nav",
    {class: "tabs", "aria-label": "About this workspace"},
    TABS.map(([name, label]) => el("a", {href: `#/workspaces/${id}${name ? `/${name}` : ""}`, "aria-current": name === (door ?? "") ? "page" : null}, label)),
  );
  const problem = el("p", {class: "problem", role: "alert", hidden: true});
  const details = el(
    "div",
    {hidden: true},
    el("div", {class: "card"}, status.nodes, setup.nodes, usage, memo, el("div", {class: "row actions"}, ways.nodes, setup.buttons, buttons.nodes)),
    tabs,
    panel?.node ?? [
      setupSteps.node,
      el(
        "div",
        {class: "columns"},
        el("section", {class: "card"}, el("h2", {}, "State"), conditions, facts),
        el("section", {class: "card"}, el("h2", {}, "Timeline"), timeline.node),
      ),
      el("section", {class: "card"}, el("h2", {}, "Output"), logs.node),
    ],
  );
  const node = el(
    "section",
    {},
    el("p", {class: "back"}, el("a", {href: "#/"}, "← Workspaces")),
    el("div", {class: "title"}, title, description),
    problem,
    details,
  );

  function update() {
    if (!workspace) return;
    setHidden(details, false);
    setText(title, workspace.name);
    document.title = `${workspace.name} · CodeHub`;
    setText(description, workspace.description);
    setHidden(description, !workspace.description);
    setText(memo, workspace.memo);
    setHidden(memo, !workspace.memo);
    ways.update(workspace, title);
    status.update(workspace);
    setup.update(workspace);
    setupSteps.update(workspace);
    buttons.update(workspace);
    conditions.replaceChildren(...Object.entries(CONDITIONS).map(([key, label]) => condition(label, workspace.conditions?.[key])));
    facts.replaceChildren(...factsOf(workspace));
    if (workspace.phase !== "RUNNING") setHidden(usage, true); // `measure` would show the last value until its next turn
    setAttribute(node, "data-status", workspace.status);
    panel?.update(workspace);
  }

  function take(newer) {
    if (workspace && newer.updated_at < workspace.updated_at) return;
    workspace = newer;
    update();
    if (panel) return;
    timeline.refresh();
    logs.follow(workspace);
  }

  function onStore() {
    const mine = state.workspaces.get(id);
    if (mine && mine !== workspace) take(mine);
    else if (!mine && state.loaded && workspace?.owner === state.user?.username && !gone) sayGone();
    else update();
  }

  function sayGone() {
    gone = true;
    setText(problem, "This workspace was deleted.");
    problem.hidden = false;
    setHidden(details, true, title);
  }

  async function load() {
    try {
      take(await get(`workspaces/${id}`));
    } catch (error) {
      setText(problem, error.status === 404 ? "This workspace does not exist or was deleted." : error.message);
      problem.hidden = false;
      return;
    }
    const action = query.get("action");
    if (action) {
      // Handled once: reloading the page or returning to it must not ask again.
      history.replaceState(null, "", `#/workspaces/${id}`);
      await confirmLinkAction(action, workspace);
    }
  }

  async function measure() {
    if (workspace) setup.update(workspace); // it depends on the time
    if (document.hidden || workspace?.phase !== "RUNNING") return setHidden(usage, true);
    try {
      const used = await get(`workspaces/${id}/usage`);
      setText(usage, usageWords(used));
      setHidden(usage, !usage.textContent || workspace.phase !== "RUNNING");
    } catch {
      setHidden(usage, true);
    }
  }

  const answered = (event) => event.detail.id === id && take(event.detail);
  document.addEventListener("workspace-answer", answered);
  const stop = store.subscribe(onStore);
  const timers = [setInterval(measure, USAGE_MS), setInterval(() => panel?.refresh(), DOOR_MS)];
  update();
  load().then(measure);
  return {
    title: workspace?.name ?? "Workspace",
    node,
    leave() {
      stop();
      timers.forEach(clearInterval);
      document.removeEventListener("workspace-answer", answered);
      logs.stop();
    },
  };
}

function condition(label, observed) {
  const value = observed?.status ?? "Unknown";
  return el(
    "li",
    {},
    el("span", {class: "badge", "data-tone": CONDITION_TONES[value] ?? "busy"}, `${label}: ${CONDITION_WORDS[value] ?? value}`),
    el("span", {class: "quiet"}, conditionWords(observed)),
  );
}

function factsOf(ws) {
  const rows = [
    ["Desired state", WANTED[ws.desired_state] ?? ws.desired_state],
    ["Profile", ws.image_ref],
    ...(ws.template ? [["Template", templateWords(ws.template)]] : []),
    ...(ws.repo ? [["Repository", ws.repo.ref ? `${ws.repo.url} (${ws.repo.ref})` : ws.repo.url]] : []),
    ...(scheduleWords(ws, Date.now()) ? [["Schedule", scheduleWords(ws, Date.now())]] : []),
    ["Size", diskWords(ws) || "not measured"],
    ["Owner", ws.owner],
    ["Created", clock(ws.created_at)],
    ["Last used", clock(ws.last_access_at)],
    ["Id", el("code", {}, ws.id)],
  ];
  if (ws.error_reason) rows.push(["Error", `${ws.error_reason} (${ws.error_count})`]);
  return rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
}

function templateWords(template) {
  const next = template.pending_version === null ? "" : `, version ${template.pending_version} from the next start on`;
  return `${template.name}, version ${template.version}${next}`;
}

function usageWords(used) {
  const parts = [];
  if (used.cpu_percent !== null && used.cpu_percent !== undefined) parts.push(`${Math.round(used.cpu_percent)} % of a core`);
  if (used.memory_bytes) {
    const limit = used.memory_limit_bytes ? ` of ${bytes(used.memory_limit_bytes)}` : "";
    parts.push(`${bytes(used.memory_bytes)}${limit} memory`);
  }
  return parts.length ? `Uses ${parts.join(", ")}` : "";
}
