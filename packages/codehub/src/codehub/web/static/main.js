// The entry point: the signed-in user, the view for the URL, and the bar above all views.

import {get, onSessionEnd, post, whoami} from "./api.js";
import {el} from "./dom.js";
import {forgetLeader, watchLeader} from "./leader_notice.js";
import {checkOwnHosts} from "./own_hosts.js";
import {forgetSessionKey} from "./session_key.js";
import * as store from "./store.js";
import {state} from "./store.js";
import * as live from "./stream.js";
import {clearToasts, failed} from "./toasts.js";
import {accountView} from "./views/account.js";
import {adminAuditView} from "./views/admin_audit.js";
import {adminNewTemplateView, adminTemplatesView, adminTemplateView} from "./views/admin_templates.js";
import {adminUsersView} from "./views/admin_users.js";
import {adminSystemView, adminWorkspacesView} from "./views/admin.js";
import {loginView} from "./views/login.js";
import {workspaceView} from "./views/workspace.js";
import {newView} from "./views/new.js";
import {workspacesView} from "./views/workspaces.js";

/** @type {[RegExp, Function][]} */
const ROUTES = [
  [/^\/$/, workspacesView],
  [/^\/workspaces\/([0-9a-f-]{36})(?:\/(terminal|files|ports|processes|ssh))?$/, workspaceView],
  [/^\/new$/, newView],
  [/^\/account$/, accountView],
  [/^\/admin$/, adminSystemView],
  [/^\/admin\/workspaces$/, adminWorkspacesView],
  [/^\/admin\/users$/, adminUsersView],
  [/^\/admin\/audit$/, adminAuditView],
  [/^\/admin\/templates$/, adminTemplatesView],
  [/^\/admin\/templates\/new\/edit$/, adminNewTemplateView],
  [/^\/admin\/templates\/([a-z0-9-]{1,63})$/, adminTemplateView],
];
const RETRY_MS = 2_000;

let leave = null; // called when the current view is left

/** {path, query} of the URL's hash: "#/workspaces/ID?action=start". */
function address() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split("?");
  return {path: path || "/", query: new URLSearchParams(query)};
}

function show(view, ...args) {
  leave?.();
  const main = document.getElementById("main");
  const shown = view(...args);
  leave = shown.leave ?? null;
  document.title = shown.title ? `${shown.title} · CodeHub` : "CodeHub";
  main.replaceChildren(shown.node);
}

function route({moveFocus = true} = {}) {
  if (!state.user) return;
  const {path, query} = address();
  const [pattern, view] = ROUTES.find(([candidate]) => candidate.test(path)) ?? [null, notFoundView];
  bar(path);
  show(view, query, ...(pattern?.exec(path)?.slice(1) ?? []));
  // Screen readers announce the new page, and Tab starts at its top.
  if (moveFocus) document.getElementById("main").focus({preventScroll: true});
  scrollTo(0, 0);
}

const notFoundView = () => ({
  title: "Not found",
  node: el("section", {class: "narrow"}, el("h1", {}, "There is no such page"), el("p", {}, el("a", {href: "#/"}, "My workspaces"))),
});

function bar(path) {
  const link = (href, text) =>
    el("a", {href: `#${href}`, "aria-current": path === href || (href !== "/" && path.startsWith(href)) ? "page" : null}, text);
  const links = [link("/", "Workspaces"), link("/account", "Account")];
  if (state.user.is_admin) links.push(link("/admin", "Admin"));
  document.getElementById("bar").replaceChildren(
    el("a", {class: "brand", href: "#/"}, el("span", {class: "mark", "aria-hidden": "true"}), "CodeHub"),
    el("nav", {"aria-label": "Main"}, links),
    el(
      "div",
      {class: "row who"},
      el("span", {class: "quiet"}, state.user.username),
      el("button", {type: "button", onclick: signOut}, "Sign out"),
    ),
  );
}

async function signOut() {
  try {
    await post("logout");
  } catch (error) {
    if (error.status !== 401) return failed(error, "Sign out");
  }
  forgetSessionKey();
  signedOut("");
}

function signedOut(why) {
  live.disconnect();
  forgetLeader();
  store.forgetEverything();
  clearToasts();
  for (const dialog of document.querySelectorAll("dialog")) dialog.close();
  document.getElementById("bar").replaceChildren(
    el("span", {class: "brand"}, el("span", {class: "mark", "aria-hidden": "true"}), "CodeHub"),
  );
  show(loginView, why, signedIn);
}

/** The page that requested the sign-in: a path on this host, never another address. */
function returnPath() {
  const next = new URLSearchParams(location.search).get("next") ?? address().query.get("next");
  if (!next?.startsWith("/")) return null;
  // Parsed as the browser will: it takes "/\other" and "/<tab>/other" for another host.
  const url = URL.canParse(next, location.origin) ? new URL(next, location.origin) : null;
  return url?.origin === location.origin ? url.href : null;
}

async function signedIn() {
  const next = returnPath();
  if (next) {
    location.replace(next);
    return;
  }
  await begin();
}

async function begin() {
  let who;
  try {
    who = await whoami();
  } catch {
    document.getElementById("main").replaceChildren(
      el("p", {class: "quiet", role: "status"}, "CodeHub does not answer. Trying again…"),
    );
    setTimeout(begin, RETRY_MS);
    return;
  }
  if (!who) {
    signedOut("");
    return;
  }
  if (returnPath()) {
    location.replace(returnPath());
    return;
  }
  state.user = who;
  get("about").then(
    (about) => {
      state.about = about;
      store.touch();
    },
    (error) => failed(error, "What this installation offers"),
  );
  live.connect();
  if (who.is_admin) watchLeader();
  route({moveFocus: false});
}

onSessionEnd(() => {
  if (state.user) signedOut("Your session has ended. Sign in to continue where you were.");
});
addEventListener("hashchange", () => route());
checkOwnHosts();
begin();
