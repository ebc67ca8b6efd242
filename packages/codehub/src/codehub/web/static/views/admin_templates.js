// For admins: the templates, and an editor that checks while the user types.

import {get, post} from "../api.js";
import {ask as confirm, formDialog} from "../dialogs.js";
import {el, field, setHidden, setText} from "../dom.js";
import {failed, said} from "../toasts.js";
import {bytes, clock, duration} from "../words.js";
import {adminNav} from "./admin.js";
import {table} from "./table.js";
import {parameterFields, parameterValues} from "./template_fields.js";

// Long enough that not every key causes a request, short enough to feel live.
const CHECK_AFTER_MS = 400;
const NEW = `[templates.example]
description = "Shown to users when they choose it"
profile = "code-server"
size = {cpus = 2, memory = "4G"}
setup = ["git --version"]

[templates.example.parameters.version]
choices = ["20", "22"]
default = "22"
`;
const path = (name, rest = "") => `templates/${encodeURIComponent(name)}${rest}`;

export function adminTemplatesView() {
  const rows = table({
    caption: "Templates",
    empty: "No templates yet. Profiles are offered until there are.",
    load: async () => (await get("templates?archived=true")).items.filter((each) => !each.builtin),
    columns: [
      ["Name", (each) => el("a", {href: `#/admin/templates/${each.name}`}, each.name)],
      ["Version", (each) => String(each.version)],
      ["For", (each) => (each.access === "admins" ? "administrators" : "all users")],
      ["Workspaces", (each) => String(each.workspaces)],
      ["Description", (each) => each.description],
      ["Actions", (each) => (each.archived_at ? el("span", {class: "quiet"}, "archived") : archiveButton(each, () => rows.refresh()))],
    ],
  });
  const node = el(
    "section",
    {},
    el("h1", {}, "Admin"),
    adminNav("#/admin/templates"),
    el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, "Templates"), el("a", {class: "button primary", href: "#/admin/templates/new/edit"}, "New template")), rows.node),
  );
  return {title: "Templates", node};
}

function archiveButton(template, after) {
  return el(
    "button",
    {
      type: "button",
      "aria-label": `Archive ${template.name}`,
      onclick: async () => {
        if (!(await confirm({title: `Archive ${template.name}?`, text: "It is no longer offered. Saving it again brings it back.", yes: "Archive"}))) return;
        try {
          await post(path(template.name, ":archive"));
          await after();
        } catch (error) {
          failed(error, `Archive ${template.name}`);
        }
      },
    },
    "Archive",
  );
}

export const adminNewTemplateView = () => editor(null);
export const adminTemplateView = (query, name) => editor(name);

function editor(name) {
  const text = el("textarea", {class: "source", rows: 22, spellcheck: "false", autocapitalize: "off", wrap: "off", disabled: true, oninput: later});
  const problems = el("ul", {class: "problems", "aria-live": "polite"});
  const fine = el("p", {class: "quiet", role: "status"}, "Loading…");
  const preview = el("div");
  // The questions that people are asked. What is entered here fills in the preview.
  const questions = el("form", {oninput: later, onsubmit: (event) => event.preventDefault()});
  const save = el("button", {type: "button", class: "primary", onclick: push}, "Save as a new version");
  const runtime = el("select", {"aria-label": "Runtime", onchange: check}, el("option", {value: ""}, "This installation"), ["process", "docker", "kubernetes"].map((each) => el("option", {value: each}, each)));
  const versions = el("section", {class: "card", hidden: true});
  let timer = 0;
  let latest = 0;
  let parameters = [];
  let names = []; // of the templates in the text
  let known = 0; // the version that the text is based on
  const diff = el("pre", {class: "logs", hidden: true, tabindex: "0", "aria-label": "What the version changed"});

  function later() {
    clearTimeout(timer);
    timer = setTimeout(check, CHECK_AFTER_MS);
  }

  function answers() {
    const still = parameters.filter((each) => text.value.includes(`.parameters.${each.name}`));
    return parameterValues(still, new FormData(questions));
  }

  async function check() {
    const mine = ++latest;
    if (!text.value.trim()) return show([{name: "", problems: [{line: 1, where: "", message: "Write a [templates.NAME] table."}], notes: [], resolved: null}]);
    try {
      const body = {source: text.value, parameters: answers(), ...(runtime.value ? {runtime: runtime.value} : {})};
      const {items} = await post("templates:preview", body);
      if (mine === latest) show(items);
    } catch (error) {
      if (mine === latest) setText(fine, error.message);
    }
  }

  function show(items) {
    // A value that users enter when they create a workspace is not a mistake in the text.
    const found = items.flatMap((item) => item.problems).filter((each) => each.line !== null || !each.where.startsWith("parameters."));
    problems.replaceChildren(...found.map(problem));
    save.disabled = found.length > 0;
    setText(fine, found.length ? `${found.length} to fix` : "No mistakes.");
    if (found.length) return preview.replaceChildren(el("p", {class: "hint"}, "The preview is shown when there are no mistakes."));
    names = items.map((item) => item.name);
    ask(items.flatMap((item) => item.parameters));
    preview.replaceChildren(...items.map(previewOf));
  }

  function ask(wanted) {
    if (JSON.stringify(wanted) === JSON.stringify(parameters)) return; // the user may be typing in it
    const given = answers();
    parameters = wanted;
    questions.replaceChildren(...parameterFields(parameters, given));
    if (parameters.some((each) => each.type === "switch" && each.required)) later(); // off is an answer
  }

  function problem(each) {
    const words = `${each.line === null ? "" : `Line ${each.line}: `}${each.where ? `${each.where}: ` : ""}${each.message}`;
    return el("li", {}, el("button", {type: "button", class: "plain", onclick: () => goTo(each.line ?? 1)}, words));
  }

  function goTo(line) {
    const lines = text.value.split("\n");
    const begin = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
    text.focus();
    text.setSelectionRange(begin, begin + (lines[line - 1] ?? "").length);
  }

  async function push() {
    save.setAttribute("aria-busy", "true");
    try {
      const items = await saved();
      if (!items) return;
      said(items.map((each) => `${each.name}: ${each.new ? `version ${each.version} saved` : "nothing changed"}`).join(", "));
      if (name === null) location.hash = `#/admin/templates/${items[0].name}`;
      else {
        known = items.find((each) => each.name === name)?.version ?? known;
        await loadVersions();
      }
    } catch (error) {
      failed(error, "Save");
      await check();
    } finally {
      save.removeAttribute("aria-busy");
    }
  }

  /** Saves, unless somebody else saved meanwhile: then asks. Null if the user wants to merge first. */
  async function saved() {
    const body = {source: text.value, base: Object.fromEntries(names.map((each) => [each, each === name ? known : 0]))};
    try {
      return (await post("templates", body)).items;
    } catch (error) {
      if (error.status !== 409) throw error;
      if (name !== null) known = await loadVersions();
      const replace = await formDialog({title: "There is a newer version", body: el("p", {}, error.message), yes: "Replace it", cancel: "Merge by hand", danger: true, submit: () => true});
      if (replace) return (await post("templates", {...body, force: true})).items;
      if (name !== null) await showDiff(known, diff); // the next save is based on it
      return null;
    }
  }

  /** Returns the newest. */
  async function loadVersions() {
    const {items} = await get(path(name, "/versions"));
    const line = (each) =>
      el(
        "li",
        {},
        el("button", {type: "button", onclick: () => showDiff(each.version, diff)}, `Version ${each.version}`),
        el("span", {class: "quiet"}, ` ${clock(each.created_at)} by ${each.created_by}`),
      );
    versions.replaceChildren(el("h2", {}, "Versions"), el("ul", {class: "versions"}, items.map(line)), diff);
    setHidden(versions, false);
    return items[0].version;
  }

  async function showDiff(version, diff) {
    try {
      const found = await get(path(name, `/versions/${version}`));
      setText(diff, found.diff || found.source);
      setHidden(diff, false);
    } catch (error) {
      failed(error, `Version ${version}`);
    }
  }

  async function load() {
    try {
      const found = name === null ? {source: NEW, version: 0} : await get(path(name));
      text.value = found.source;
      known = found.version;
      text.disabled = false;
      if (name !== null) await loadVersions();
    } catch (error) {
      setText(fine, error.message);
      save.disabled = true;
      return;
    }
    await check();
  }

  const title = name === null ? "New template" : name;
  const node = el(
    "section",
    {},
    el("h1", {}, "Admin"),
    adminNav("#/admin/templates"),
    el("p", {class: "back"}, el("a", {href: "#/admin/templates"}, "← Templates")),
    el(
      "div",
      {class: "columns"},
      el("section", {class: "card"}, el("h2", {}, title), field("TOML", text), fine, problems, el("div", {class: "row"}, save)),
      el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, "Preview"), runtime), questions, preview),
    ),
    versions,
  );
  load();
  return {
    title,
    node,
    leave: () => clearTimeout(timer),
  };
}

function previewOf(item) {
  const notes = item.notes.map((note) => el("p", {class: "hint"}, note));
  const needed = item.problems.filter((each) => each.where.startsWith("parameters.")).map((each) => el("p", {class: "hint"}, `${each.where.replace("parameters.", "")}: ${each.message}`));
  if (!item.resolved) return el("div", {}, el("h3", {}, item.name), needed, notes);
  const got = item.resolved;
  const rows = [
    ["Profile", got.profile],
    ["Runs", got.image_ref],
    ["Size", sizeWords(got.size)],
    ["Repository", [got.repo_url, got.repo_ref, got.repo_path].filter(Boolean).join(" ")],
    ["Sleeps after", got.ttl_standby_seconds && duration(got.ttl_standby_seconds)],
    ["Archived after", got.ttl_archive_seconds && duration(got.ttl_archive_seconds)],
    ["Schedule", got.schedule],
    ["Ports", got.ports.join(", ")],
    ...Object.entries(got.env).map(([key, value]) => ["Environment", `${key}=${value}`]),
    ...got.setup.map((command) => ["Setup", command]),
  ].filter(([, value]) => value);
  return el("div", {}, el("h3", {}, item.name), el("dl", {class: "facts"}, rows.flatMap(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])), notes);
}

function sizeWords(size) {
  const parts = [];
  if (size.cpus !== null) parts.push(size.cpus === 1 ? "1 CPU" : `${size.cpus} CPUs`);
  if (size.memory_bytes !== null) parts.push(`${bytes(size.memory_bytes)} memory`);
  if (size.disk_bytes !== null) parts.push(`${bytes(size.disk_bytes)} disk`);
  return parts.join(", ");
}
