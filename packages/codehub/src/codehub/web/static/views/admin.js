// For admins: the coordinator's state, and all workspaces, including deleted ones that can be undeleted.

import {coordinatorHealth, get, post} from "../api.js";
import {el} from "../dom.js";
import {failed, said} from "../toasts.js";
import {ago, clock, describe, NO_LEADER, refusalLines} from "../words.js";
import {table} from "./table.js";

const PER_PAGE = 50;

export function adminNav(current) {
  const link = (href, text) => el("a", {href, "aria-current": href === current ? "page" : null}, text);
  return el("nav", {class: "tabs", "aria-label": "Admin"}, link("#/admin", "System"), link("#/admin/workspaces", "All workspaces"), link("#/admin/templates", "Templates"), link("#/admin/users", "Users"), link("#/admin/audit", "Audit trail"));
}

export function adminSystemView() {
  const summary = el("p", {role: "status"}, "Asking…");
  const leader = el("dl", {class: "facts"});
  const refusals = el("ul", {"aria-label": "Coordinators that refuse to lead"});
  const components = table({
    caption: "Components of the coordinator",
    empty: "No component has reported yet.",
    load,
    columns: [
      ["Component", ([name]) => name],
      ["Last run", ([, component]) => ago(component.last_tick_at, Date.now())],
      ["Last error", ([, component]) => component.last_error || "none"],
    ],
  });

  async function load() {
    const health = await coordinatorHealth();
    const who = health.leader;
    summary.textContent = who?.holder_id ? `${who.holder_id} leads.` : NO_LEADER;
    const rows = who ? [["Leader", who.holder_id || "–"], ["Epoch", String(who.epoch)], ["Since", clock(who.acquired_at)]] : [];
    leader.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    refusals.replaceChildren(...refusalLines(health).map((line) => el("li", {}, line)));
    return Object.entries(health.components ?? {}).sort();
  }

  const node = el(
    "section",
    {},
    el("h1", {}, "Admin"),
    adminNav("#/admin"),
    el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, "Coordinator"), el("button", {type: "button", onclick: components.refresh}, "Refresh")), summary, refusals, leader, components.node),
  );
  return {title: "System", node};
}

export function adminWorkspacesView() {
  let page = 1;
  let total = 0;
  const where = el("span", {class: "quiet", role: "status"});
  const deleted = el("input", {type: "checkbox", id: "show-deleted", onchange: () => go(1)});
  const rows = table({
    caption: "All workspaces",
    empty: "None.",
    load,
    columns: [
      ["Name", (ws) => (ws.status === "DELETED" ? ws.name : el("a", {href: `#/workspaces/${ws.id}`}, ws.name))],
      ["Owner", (ws) => ws.owner],
      ["State", stateCell],
      ["Last used", (ws) => ago(ws.last_access_at, Date.now())],
      ["Actions", (ws) => (ws.status === "DELETED" ? undeleteButton(ws, () => rows.refresh()) : null)],
    ],
  });

  async function load() {
    const answer = await get(`workspaces?all=true&page=${page}&per_page=${PER_PAGE}${deleted.checked ? "&deleted=true" : ""}`);
    total = answer.total;
    where.textContent = total ? `${(page - 1) * PER_PAGE + 1}–${Math.min(total, page * PER_PAGE)} of ${total}` : "";
    previous.disabled = page === 1;
    next.disabled = page * PER_PAGE >= total;
    return answer.items;
  }

  function go(to) {
    page = Math.max(1, to);
    rows.refresh();
  }

  const previous = el("button", {type: "button", disabled: true, onclick: () => go(page - 1)}, "Previous");
  const next = el("button", {type: "button", disabled: true, onclick: () => go(page + 1)}, "Next");
  const node = el(
    "section",
    {},
    el("h1", {}, "Admin"),
    adminNav("#/admin/workspaces"),
    el(
      "section",
      {class: "card"},
      el("div", {class: "row head"}, el("h2", {}, "All workspaces"), el("button", {type: "button", onclick: () => rows.refresh()}, "Refresh")),
      el("div", {class: "check"}, deleted, el("label", {for: "show-deleted"}, "Show deleted workspaces")),
      rows.node,
      el("div", {class: "row"}, previous, next, where),
    ),
  );
  return {title: "All workspaces", node};
}

function stateCell(ws) {
  if (ws.status === "DELETED") return el("span", {class: "badge", "data-tone": "calm"}, "Deleted");
  const said_ = describe(ws, Date.now());
  return el("span", {}, el("span", {class: "badge", "data-tone": said_.tone}, said_.label), " ", el("span", {class: "quiet"}, said_.line));
}

function undeleteButton(ws, after) {
  const button = el(
    "button",
    {
      type: "button",
      "aria-label": `Undelete ${ws.name}`,
      onclick: async () => {
        try {
          await post(`workspaces/${ws.id}:undelete`);
          said(`${ws.name} was undeleted; it is archived.`);
          await after();
        } catch (error) {
          failed(error, `Undelete ${ws.name}`);
        }
      },
    },
    "Undelete",
  );
  return button;
}
