// For admins: the users.

import {get, patch, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {state} from "../store.js";
import {failed} from "../toasts.js";
import {clock} from "../words.js";
import {dropButton} from "./account.js";
import {adminNav} from "./admin.js";
import {table} from "./table.js";

export function adminUsersView() {
  const users = table({
    caption: "Users",
    empty: "None.",
    load: async () => (await get("users")).items,
    columns: [
      ["Name", (user) => user.username],
      ["Role", (user) => (user.is_admin ? "admin" : "user")],
      ["Can sign in", (user) => (user.disabled ? "no" : "yes")],
      ["Created", (user) => clock(user.created_at)],
      ["Actions", (user) => actions(user, () => users.refresh())],
    ],
  });
  const node = el(
    "section",
    {},
    el("h1", {}, "Admin"),
    adminNav("#/admin/users"),
    el("section", {class: "card"}, el("div", {class: "row head"}, el("h2", {}, "Users"), el("button", {type: "button", class: "primary", onclick: () => newUser(users.refresh)}, "New user")), users.node),
  );
  return {title: "Users", node};
}

function actions(user, after) {
  if (user.username === state.user?.username) return el("span", {class: "quiet"}, "you");
  const toggle = (label, changes) =>
    el(
      "button",
      {
        type: "button",
        "aria-label": `${label}: ${user.username}`,
        onclick: async () => {
          try {
            await patch(`users/${user.id}`, changes);
            await after();
          } catch (error) {
            failed(error, user.username);
          }
        },
      },
      label,
    );
  return el(
    "div",
    {class: "row"},
    user.disabled ? toggle("Enable", {disabled: false}) : toggle("Disable", {disabled: true}),
    user.is_admin ? toggle("Make user", {is_admin: false}) : toggle("Make admin", {is_admin: true}),
    el("button", {type: "button", "aria-label": `New password for ${user.username}`, onclick: () => newPassword(user)}, "Password"),
    dropButton("Delete", user.username, `Delete ${user.username}?`, "Only a user without workspaces can be deleted.", `users/${user.id}`, after),
  );
}

const passwordInput = () => el("input", {name: "password", type: "password", required: true, minlength: 8, autocomplete: "new-password"});

async function newUser(after) {
  const admin = el("input", {type: "checkbox", name: "is_admin", id: "new-user-admin"});
  const made = await formDialog({
    title: "New user",
    body: el(
      "div",
      {},
      field("User name", el("input", {name: "username", required: true, maxlength: 64, autocomplete: "off", autocapitalize: "off"})),
      field("Password", passwordInput(), "At least 8 characters."),
      el("div", {class: "check"}, admin, el("label", {for: "new-user-admin"}, "Admin")),
    ),
    yes: "Create user",
    submit: (data) => post("users", {username: data.get("username"), password: data.get("password"), is_admin: data.get("is_admin") === "on"}),
  });
  if (made) await after();
}

function newPassword(user) {
  return formDialog({
    title: `New password for ${user.username}`,
    body: el("div", {}, field("Password", passwordInput(), "The user's sessions will end.")),
    yes: "Set password",
    submit: (data) => patch(`users/${user.id}`, {password: data.get("password")}),
  });
}
