// The signed-in user's account: password, API tokens, keys, git credentials, secrets, dotfiles, sessions.

import {get, post, remove} from "../api.js";
import {copyButton} from "../copy.js";
import {ask, formDialog, showDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {state} from "../store.js";
import {failed, said} from "../toasts.js";
import {ago, browserWords, clock} from "../words.js";
import {dotfilesForm, gitCredentials, gitKey, secretsSection, timeZoneForm} from "./account_setup.js";
import {table} from "./table.js";

export function accountView() {
  const tokens = table({
    caption: "API tokens",
    empty: el("span", {}, "No tokens. ", el("code", {}, "codehub login"), " makes one for the command line."),
    load: async () => (await get("tokens")).items,
    columns: [
      ["Name", (token) => token.name],
      ["Opens", (token) => (token.workspace_id ? (state.workspaces.get(token.workspace_id)?.name ?? token.workspace_id) : "everything of mine")],
      ["Created", (token) => clock(token.created_at)],
      ["Expires", (token) => (token.expires_at ? clock(token.expires_at) : "never")],
      ["Last used", (token) => ago(token.last_used_at, Date.now())],
      ["Actions", (token) => dropButton("Revoke", token.name, `Revoke the token ${token.name}?`, "Programs that use it stop working.", `tokens/${token.id}`, () => tokens.refresh())],
    ],
  });
  const keys = table({
    caption: "SSH keys",
    empty: el("span", {}, "No keys. ", el("code", {}, "codehub config-ssh"), " makes and adds one."),
    load: async () => (await get("keys")).items,
    columns: [
      ["Name", (key) => key.name],
      ["Fingerprint", (key) => el("code", {}, key.fingerprint)],
      ["Added", (key) => clock(key.created_at)],
      ["Actions", (key) => dropButton("Remove", key.name, `Remove the SSH key ${key.name}?`, "It no longer signs in to your workspaces.", `keys/${key.id}`, () => keys.refresh())],
    ],
  });
  const sessions = table({
    caption: "Sessions",
    empty: "None.",
    load: async () => (await get("sessions")).items.sort((a, b) => b.current - a.current),
    columns: [
      ["From", (session) => session.address || "–"],
      ["Browser", (session) => el("span", {class: "clip", title: session.user_agent ?? ""}, browserWords(session.user_agent))],
      ["Last seen", (session) => ago(session.last_seen_at, Date.now())],
      ["Ends", (session) => clock(session.expires_at)],
      ["Actions", (session) => (session.current ? el("span", {class: "quiet"}, "this one") : dropButton("End", `the session in ${browserWords(session.user_agent)}`, "End this session?", "That browser will have to sign in again.", `sessions/${session.id}`, () => sessions.refresh()))],
    ],
  });
  const node = el(
    "section",
    {},
    el("div", {class: "row head"}, el("h1", {}, "Account")),
    el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, "API tokens"), el("button", {type: "button", onclick: () => newToken(tokens.refresh)}, "New token")), tokens.node),
    el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, "SSH keys"), el("button", {type: "button", onclick: () => newKey(keys.refresh)}, "Add key")), keys.node),
    gitCredentials(dropButton),
    gitKey(),
    secretsSection(dropButton),
    dotfilesForm(),
    timeZoneForm(),
    el("section", {class: "card"}, el("h2", {}, "Sessions"), sessions.node),
    el("section", {class: "card"}, el("h2", {}, "Password"), passwordForm()),
  );
  return {title: "Account", node};
}

/** A button that removes the object of a table row after confirmation. */
export function dropButton(label, whose, title, text, path, after) {
  return el(
    "button",
    {
      type: "button",
      class: "danger",
      "aria-label": `${label} ${whose}`,
      onclick: async () => {
        if (!(await ask({title, text, yes: label, danger: true}))) return;
        try {
          await remove(path);
          await after();
        } catch (error) {
          failed(error, `${label} ${whose}`);
        }
      },
    },
    label,
  );
}

async function newToken(after) {
  const mine = [...state.workspaces.values()].filter((workspace) => workspace.owner === state.user?.username);
  const only = el("select", {name: "workspace_id"}, el("option", {value: ""}, "All my workspaces"), mine.map((workspace) => el("option", {value: workspace.id}, `Only ${workspace.name}`)));
  const days = el("input", {name: "days", type: "number", min: 1, max: 3650, placeholder: "never"});
  const made = await formDialog({
    title: "New token",
    body: el("div", {}, field("Name", el("input", {name: "name", required: true, maxlength: 255, autocomplete: "off"}), "The program that will use it."), field("Opens", only, "A token for one workspace cannot be used for any other."), field("Days until it expires", days)),
    yes: "Create token",
    submit: (data) => {
      const count = Number(data.get("days"));
      return post("tokens", {name: data.get("name"), ...(count ? {expires_in_days: count} : {}), ...(data.get("workspace_id") ? {workspace_id: data.get("workspace_id")} : {})});
    },
  });
  if (!made) return;
  await after();
  const secret = el("input", {readonly: true, value: made.token, class: "secret", onfocus: (event) => event.target.select()});
  await showDialog({
    title: "Your new token",
    body: el("div", {}, field("Token", secret, "Copy it now. It is shown only once."), copyButton(made.token, "the token")),
    close: "I have copied it",
  });
}

async function newKey(after) {
  const text = el("textarea", {name: "public_key", required: true, rows: 4, maxlength: 16384, autocomplete: "off", spellcheck: "false"});
  const made = await formDialog({
    title: "Add an SSH key",
    body: el("div", {}, field("Public key", text, "The one line in a file such as ~/.ssh/id_ed25519.pub.")),
    yes: "Add key",
    submit: (data) => post("keys", {public_key: data.get("public_key").trim()}),
  });
  if (made) await after();
}

function passwordForm() {
  const current = el("input", {name: "current_password", type: "password", autocomplete: "current-password", required: true});
  const next = el("input", {name: "new_password", type: "password", autocomplete: "new-password", required: true, minlength: 8});
  const form = el("form", {class: "narrow"}, field("Current password", current), field("New password", next, "At least 8 characters. Your other sessions will end."), el("button", {type: "submit"}, "Change password"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await post("password", {current_password: current.value, new_password: next.value});
      form.reset();
      said("Your password was changed.");
    } catch (error) {
      failed(error, "Change password");
    }
  });
  return form;
}
