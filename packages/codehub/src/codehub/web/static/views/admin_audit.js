// For admins: the audit trail, newest first.

import {get} from "../api.js";
import {el} from "../dom.js";
import {clock} from "../words.js";
import {adminNav} from "./admin.js";
import {table} from "./table.js";

const KINDS = [
  ["", "All events"],
  ["sign_in.*", "Sign-ins"],
  ["token.*", "API tokens"],
  ["user.*", "Users"],
  ["workspace.*", "Others' workspaces"],
  ["port.*", "Shared ports"],
];

export function adminAuditView() {
  let pages = [null]; // the cursor of each page up to the current one
  let following = null;
  const kind = el("select", {id: "audit-kind", onchange: first}, KINDS.map(([value, text]) => el("option", {value}, text)));
  const actor = el("input", {id: "audit-actor", type: "search", maxlength: 64, placeholder: "user name", onchange: first});
  const events = table({
    caption: "Audit trail",
    empty: "There are no such events.",
    load,
    columns: [
      ["Time", (event) => clock(event.at)],
      ["Event", (event) => event.event],
      ["By", (event) => event.actor],
      ["What", what],
      ["From", (event) => event.address || "–"],
      ["Details", details],
    ],
  });

  async function load() {
    const query = new URLSearchParams({limit: "50"});
    if (kind.value) query.set("event", kind.value);
    if (actor.value.trim()) query.set("actor", actor.value.trim());
    if (pages.at(-1)) query.set("cursor", pages.at(-1));
    const answer = await get(`audit?${query}`);
    following = answer.next_cursor;
    newer.disabled = pages.length === 1;
    older.disabled = following === null;
    return answer.items;
  }

  function first() {
    pages = [null];
    events.refresh();
  }

  const newer = el("button", {type: "button", disabled: true, onclick: () => { pages.pop(); events.refresh(); }}, "Newer");
  const older = el("button", {type: "button", disabled: true, onclick: () => { pages.push(following); events.refresh(); }}, "Older");
  const node = el(
    "section",
    {},
    el("h1", {}, "Admin"),
    adminNav("#/admin/audit"),
    el(
      "section",
      {class: "card"},
      el("div", {class: "row head"}, el("h2", {}, "Audit trail"), el("button", {type: "button", onclick: first}, "Refresh")),
      el("div", {class: "row"}, el("label", {for: "audit-kind"}, "Events"), kind, el("label", {for: "audit-actor"}, "By"), actor),
      events.node,
      el("div", {class: "row"}, newer, older),
    ),
  );
  return {title: "Audit trail", node};
}

function what(event) {
  if (!event.workspace_id) return event.target || "–";
  return el("a", {href: `#/workspaces/${event.workspace_id}`}, event.target || event.workspace_id);
}

function details(event) {
  const known = Object.entries(event.detail).filter(([, value]) => value !== null);
  return el("span", {class: "quiet"}, known.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", "));
}
