// Connects the parts of the page. The form and the URL determine what is shown, never the order of events: text that was
// typed before this script ran, before the workspaces were known or before the index was ready is searched too.

import { Failure, getFrom, isSignedIn, post, signOut } from "./api.js";
import { byId, element } from "./dom.js";
import * as results from "./results.js";
import * as status from "./status.js";
import * as viewer from "./viewer.js";

const TYPING_MS = 120;
const REFRESH_MS = 2000;
const query = byId("query");
const words = new URLSearchParams(location.hash.slice(1));
let workspace = words.get("workspace") ?? "";
let asking = new AbortController();
let searched = "";
// False until the page shows the answer to the current query; "partial" if the index could not answer all of it.
/** @type {boolean | "partial"} */
let settled = true;
let seen = "";
let typing = 0;

const currentRequest = () => ({
  kind: byId("kind").value, mode: byId("mode").value, query: query.value, globs: byId("globs").value.replaceAll(" ", ""), workspace,
});

function remember() {
  const now = currentRequest();
  const kept = new URLSearchParams({ workspace });
  if (now.query) for (const name of ["query", "kind", "mode", "globs"]) if (now[name]) kept.set(name, now[name]);
  history.replaceState(null, "", `#${kept}`);
}

async function search() {
  const now = currentRequest();
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  searched = JSON.stringify(now);
  settled = false;
  remember();
  byId("mode").disabled = now.kind !== "search";
  if (!now.query.trim() || !workspace) {
    settled = true;
    return results.nothing(workspace ? "" : "No workspace is open. Run `sari web` inside one.");
  }
  try {
    const parameters = { q: now.query, globs: now.kind === "symbols" ? "" : now.globs };
    if (now.kind === "search") Object.assign(parameters, { mode: now.mode, max_tokens: 12000 });
    const answer = await getFrom(workspace, now.kind, parameters, signal);
    results.show(answer, now, (path, line, end) => viewer.open(workspace, path, line, end, now), following(parameters, answer.cursor, signal));
    settled = answer.complete === false ? "partial" : true;
  } catch (error) {
    if (signal.aborted) return undefined;
    results.failed(error.message);
    settled = error instanceof Failure && error.status >= 400 && error.status < 500 && error.status !== 404;
  }
  return undefined;
}

// Returns a function that requests the next page, if there is one; it returns that page and the function for the next.
function following(parameters, cursor, signal) {
  if (!cursor) return null;
  return async () => {
    try {
      const answer = await getFrom(workspace, "search", { ...parameters, cursor }, signal);
      return [answer, following(parameters, answer.cursor, signal)];
    } catch (error) {
      if (!signal.aborted) byId("summary").textContent = error.message;
      return [null, null];
    }
  };
}

function searchSoon() {
  clearTimeout(typing);
  typing = setTimeout(search, TYPING_MS);
}

function offer(state) {
  const roots = [...new Set([...state.workspaces.map((view) => view.root), ...(workspace ? [workspace] : [])])].sort();
  const select = byId("workspace");
  if (!workspace && roots.length) workspace = roots[0];
  if (select.dataset.roots !== JSON.stringify(roots)) {
    select.dataset.roots = JSON.stringify(roots);
    select.replaceChildren(...roots.map((root) => element("option", { value: root }, root)));
  }
  select.value = workspace;
}

function look(state) {
  offer(state);
  const view = state.workspaces.find((other) => other.root === workspace);
  const now = stateText(view, state.daemon);
  byId("index-state").textContent = now;
  status.progress(view?.status);
  status.show(state, workspace);
  // Search again if the form changed, the search failed, or the answer was partial and the index has changed since.
  const progress = JSON.stringify(view?.status ?? null);
  const more = settled === false || (settled === "partial" && progress !== seen) || JSON.stringify(currentRequest()) !== searched;
  seen = progress;
  if (more) searchSoon();
}

async function refresh() {
  try {
    look(await status.read());
  } catch (error) {
    if (error.status === 401) return signOut();
    byId("index-state").textContent = error.message;
  }
  return setTimeout(refresh, document.hidden ? REFRESH_MS * 5 : REFRESH_MS);
}

const stateText = (view, daemon) => `${status.stateOf(view?.status)} · sari ${daemon.version}`;

function choose(view) {
  byId("search-view").hidden = view !== "search";
  byId("status-view").hidden = view !== "status";
  byId("show-search").setAttribute("aria-pressed", String(view === "search"));
  byId("show-status").setAttribute("aria-pressed", String(view === "status"));
  if (view === "status") status.runChecks(workspace);
}

async function openWorkspace() {
  if (!workspace) return;
  try {
    await post("open", { workspace });
  } catch (error) {
    results.failed(error.message);
  }
}

function shortcut(event) {
  if (event.key === "Escape" && !byId("viewer").hidden) {
    viewer.close();
    (byId("results").querySelector("[aria-current]") ?? query).focus();
  } else if (event.key === "/" && !event.target.matches("input, select")) {
    event.preventDefault();
    choose("search");
    query.select();
  }
}

function begin() {
  for (const name of ["kind", "mode", "globs"]) if (words.has(name)) byId(name).value = words.get(name);
  if (!query.value && words.has("query")) query.value = words.get("query");
  byId("search").addEventListener("submit", (event) => { event.preventDefault(); search(); });
  byId("search").addEventListener("input", searchSoon);
  byId("workspace").addEventListener("change", async (event) => {
    workspace = event.target.value;
    viewer.close();
    await openWorkspace();
    search();
  });
  document.addEventListener("keydown", results.walk);
  document.addEventListener("keydown", shortcut);
  byId("viewer-close").addEventListener("click", viewer.close);
  byId("show-search").addEventListener("click", () => choose("search"));
  byId("show-status").addEventListener("click", () => choose("status"));
  byId("rescan").addEventListener("click", () => status.rescan(workspace));
}

async function run() {
  begin();
  await openWorkspace();
  await search();
  refresh();
}

await (isSignedIn() ? run() : signOut());
