// For admins, on every page: a coordinator that refuses to lead, and why. Until it is corrected, nobody may lead.

import {coordinatorHealth} from "./api.js";
import {el} from "./dom.js";
import {NO_LEADER, refusalLines} from "./words.js";

const EVERY_MS = 30_000;

let watching = 0; // changes with each session; a late answer for an earlier one is ignored

function show(lines) {
  const notice = document.getElementById("leader");
  const text = lines.join(" ");
  notice.hidden = !text;
  if ((notice.firstChild?.textContent ?? "") === text) return; // a screen reader would read it again
  notice.replaceChildren(...(text ? [el("span", {}, text), " ", el("a", {href: "#/admin"}, "Coordinator")] : []));
}

async function check(session) {
  try {
    const health = await coordinatorHealth();
    const refusals = refusalLines(health);
    const nobody = refusals.length && !health.leader?.holder_id ? [NO_LEADER] : [];
    if (session === watching) show([...nobody, ...refusals]);
  } catch {
    // The page says by other means that CodeHub does not answer.
  }
}

export async function watchLeader() {
  const session = ++watching;
  while (session === watching) {
    if (!document.hidden) await check(session);
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
}

export function forgetLeader() {
  watching++;
  show([]);
}
