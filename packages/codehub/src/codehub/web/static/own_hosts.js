// On a laptop, workspaces have names below `.localhost`. Most browsers resolve them; Safari and some resolvers do not.

import {el} from "./dom.js";

const TIMEOUT_MS = 10_000;
const ATTEMPTS = 3; // a network that changes fails requests too
const BETWEEN_MS = 1_000;

let checked = false;

/** Whether the proxy answers at this address. The response itself is not readable from here, and not needed. */
async function answers(url) {
  try {
    await fetch(url, {mode: "no-cors", credentials: "omit", cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS)});
    return true;
  } catch {
    return false;
  }
}

/** Whether this browser finds the names of workspaces: "yes", "no", or "unknown" while the proxy does not answer at all. */
async function findsNames(own) {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    if (attempt) await new Promise((resolve) => setTimeout(resolve, BETWEEN_MS));
    if (await answers(own)) return "yes";
  }
  const proxy = new URL(own);
  proxy.hostname = "localhost";
  return (await answers(proxy)) ? "no" : "unknown";
}

/** Shows what to do if this browser does not find the names of workspaces. */
async function check(link) {
  const own = new URL("/health", link);
  own.hostname = own.hostname.replace(/^[^.]*/, "resolves");
  const found = await findsNames(own);
  document.documentElement.dataset.findsNames = found;
  if (found !== "no") return;
  const notice = document.getElementById("own-hosts");
  notice.replaceChildren(
    `This browser cannot find addresses such as ${own.hostname}, so workspaces do not open in it. Use Chrome, Edge or `,
    "Firefox, or start CodeHub with ",
    el("code", {}, "CODEHUB_WORKSPACE_HOST=none codehub up"),
    ". Then workspaces share one address, and their pages are less isolated from each other.",
  );
  notice.hidden = false;
}

/** Checks once, when the user opens a workspace or one of its ports. */
export function checkOwnHosts() {
  document.addEventListener("click", ({target}) => {
    const link = target instanceof Element ? target.closest("a") : null;
    if (checked || !link?.hostname.endsWith(".localhost")) return;
    checked = true;
    check(link.href);
  });
}
