// Sign-in. Shows why it is needed, what was wrong, and how long a lock-out lasts.

import {post} from "../api.js";
import {el, field} from "../dom.js";
import {keepSessionKey} from "../session_key.js";

export function loginView(why, onSignedIn) {
  const username = el("input", {name: "username", autocomplete: "username", required: true, autocapitalize: "off", spellcheck: "false"});
  const password = el("input", {name: "password", type: "password", autocomplete: "current-password", required: true});
  const problem = el("p", {class: "problem", role: "alert", hidden: true});
  const button = el("button", {class: "primary", type: "submit"}, "Sign in");

  async function submit(event) {
    event.preventDefault();
    if (button.getAttribute("aria-busy")) return;
    button.setAttribute("aria-busy", "true");
    problem.hidden = true;
    try {
      const {session_key} = await post("login", {username: username.value, password: password.value});
      keepSessionKey(session_key);
      await onSignedIn();
    } catch (error) {
      const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
      problem.textContent = error.message + wait;
      problem.hidden = false;
      password.select();
    } finally {
      button.removeAttribute("aria-busy");
    }
  }

  const node = el(
    "section",
    {class: "narrow card login"},
    el("h1", {}, "Sign in"),
    why ? el("p", {class: "quiet", role: "status"}, why) : null,
    el("form", {onsubmit: submit}, field("User name", username), field("Password", password), problem, button),
  );
  queueMicrotask(() => username.focus());
  return {title: "Sign in", node};
}
