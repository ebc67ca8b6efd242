// A user's personal setup for workspaces: git credentials, a git key, secrets, dotfiles. Explains when changes take effect.

import {get, post, put, remove} from "../api.js";
import {copyButton} from "../copy.js";
import {ask, formDialog} from "../dialogs.js";
import {el, field, setText} from "../dom.js";
import {putIfKnown, state} from "../store.js";
import {failed, said} from "../toasts.js";
import {clock} from "../words.js";
import {table} from "./table.js";

const section = (title, button, ...content) =>
  el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, title), button), content);
const note = (text) => el("p", {class: "quiet"}, text);

export function gitCredentials(dropButton) {
  const shown = table({
    caption: "Git credentials",
    empty: el("span", {}, "None. Private repositories need one, or your key below."),
    load: async () => (await get("git-credentials")).items,
    columns: [
      ["Host", (each) => each.url],
      ["User name", (each) => each.username],
      ["Added", (each) => clock(each.created_at)],
      ["Actions", (each) => dropButton("Remove", each.host, `Remove the credential for ${each.host}?`, "Git in your workspaces loses access at once.", `git-credentials/${each.id}`, () => shown.refresh())],
    ],
  });
  return section(
    "Git credentials",
    el("button", {type: "button", onclick: () => newCredential(shown.refresh)}, "Add credential"),
    note("Git in your workspaces asks CodeHub each time. Changes take effect at once, in running workspaces too."),
    shown.node,
  );
}

async function newCredential(after) {
  const made = await formDialog({
    title: "Add a git credential",
    body: el(
      "div",
      {},
      field("Host", el("input", {name: "host", required: true, autocomplete: "off", placeholder: "github.com"}), "Or the URL of a repository on it."),
      field("User name", el("input", {name: "username", autocomplete: "off", placeholder: "git"}), "Most hosts take any with a token."),
      field("Token", el("input", {name: "token", type: "password", required: true, autocomplete: "off"}), "It is stored encrypted and never shown again."),
    ),
    yes: "Add credential",
    submit: (data) => post("git-credentials", {host: data.get("host").trim(), username: data.get("username").trim(), token: data.get("token").trim()}),
  });
  if (made) await after();
}

export function gitKey() {
  const line = el("input", {readonly: true, class: "secret", "aria-label": "Public key", onfocus: (event) => event.target.select()});
  const text = note("");
  const make = el("button", {type: "button", onclick: () => change(() => post("git-key", {replace: false}))}, "Make a key");
  const drop = el("button", {type: "button", class: "danger", onclick: dropKey}, "Remove");
  const buttons = el("div", {class: "row actions"});

  function show(key) {
    buttons.replaceChildren(...(key.public_key ? [copyButton(key.public_key, "your key"), drop] : []));
    line.hidden = !key.public_key;
    line.value = key.public_key ?? "";
    make.hidden = Boolean(key.public_key);
    setText(text, key.public_key ? "Add this public key to your account at the git host. The private half stays in CodeHub, which signs for your workspaces." : "For repositories over SSH. CodeHub makes a key and signs for your workspaces.");
  }
  async function change(request) {
    try {
      show(await request());
    } catch (error) {
      failed(error, "Git key");
    }
  }
  async function dropKey() {
    if (!(await ask({title: "Remove your git key?", text: "Git over SSH in your workspaces loses access at once.", yes: "Remove", danger: true}))) return;
    await change(async () => (await remove("git-key"), {public_key: null}));
  }
  show({public_key: null});
  change(() => get("git-key"));
  return section("Key for git over SSH", make, text, line, buttons);
}

export function secretsSection(dropButton) {
  const shown = table({
    caption: "Secrets",
    empty: "None.",
    load: async () => (await get("secrets")).items,
    columns: [
      ["Name", (each) => el("code", {}, each.name)],
      ["Given as", (each) => (each.kind === "env" ? "environment variable" : "file in $CODEHUB_SECRETS_DIR")],
      ["Size", (each) => `${each.bytes} bytes`],
      ["Changed", (each) => clock(each.updated_at)],
      ["Actions", (each) => dropButton("Remove", each.name, `Remove the secret ${each.name}?`, "Its file goes at once; programs that run keep their environment until they end.", `secrets/${encodeURIComponent(each.name)}`, () => shown.refresh())],
    ],
  });
  return section(
    "Secrets",
    el("button", {type: "button", onclick: () => newSecret(shown.refresh)}, "Set secret"),
    note("Only your own workspaces get them, in memory. Files change at once. Variables are in new terminals at once, and in an IDE when its workspace is started next."),
    shown.node,
  );
}

async function newSecret(after) {
  const kind = el("select", {name: "kind"}, el("option", {value: "env"}, "Environment variable"), el("option", {value: "file"}, "File in memory"));
  const made = await formDialog({
    title: "Set a secret",
    body: el(
      "div",
      {},
      field("Name", el("input", {name: "name", required: true, maxlength: 128, autocomplete: "off", spellcheck: "false"}), "An existing one is replaced."),
      field("Given as", kind),
      field("Value", el("textarea", {name: "value", required: true, rows: 4, autocomplete: "off", spellcheck: "false"}), "A variable has at most 8 KiB, a file 64 KiB. It is stored encrypted and never shown again."),
    ),
    yes: "Set secret",
    submit: (data) => put(`secrets/${encodeURIComponent(data.get("name").trim())}`, {kind: data.get("kind"), value: data.get("value")}),
  });
  if (made) await after();
}

/** The time zone of the user's schedules. */
export function timeZoneForm() {
  const zone = el("input", {name: "time_zone", required: true, maxlength: 100, autocomplete: "off", spellcheck: "false"});
  const here = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const form = el("form", {class: "narrow"}, field("Time zone", zone, `Templates may start workspaces at a time of day. This browser is in ${here}.`), el("button", {type: "submit"}, "Save"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await put("time-zone", {time_zone: zone.value.trim()});
      said("Your time zone was saved.");
      for (const each of state.workspaces.values()) if (each.scheduled) get(`workspaces/${each.id}`).then(putIfKnown, () => {});
    } catch (error) {
      failed(error, "Time zone");
    }
  });
  get("time-zone").then((found) => (zone.value = found.time_zone), (error) => failed(error, "Time zone"));
  return el("section", {class: "card"}, el("h2", {}, "Time zone"), form);
}

export function dotfilesForm() {
  const url = el("input", {name: "url", autocomplete: "off", spellcheck: "false"});
  const ref = el("input", {name: "ref", autocomplete: "off", spellcheck: "false"});
  const form = el("form", {class: "narrow"}, field("Repository", url, "Its install.sh, bootstrap.sh or setup.sh is run; without one, its dotfiles are linked into the home."), field("Branch, tag or commit", ref, "Empty: the default branch."), el("button", {type: "submit"}, "Save"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await put("dotfiles", {url: url.value.trim(), ref: ref.value.trim()});
      said("Saved. Each workspace gets them at its next start.");
    } catch (error) {
      failed(error, "Dotfiles");
    }
  });
  get("dotfiles").then((found) => ((url.value = found.url), (ref.value = found.ref)), () => {});
  return section("Dotfiles", null, note("Used at the next start of each workspace, once for each home."), form);
}
