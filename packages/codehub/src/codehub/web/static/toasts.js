// Short messages at the edge of the page: what was done, and what failed with what to do.

import {el} from "./dom.js";

const SHOWN_MS = 6_000;

function show(text, kind) {
  const note = el(
    "div",
    {class: `toast ${kind}`, role: kind === "bad" ? "alert" : "status"},
    el("span", {}, text),
    el("button", {type: "button", class: "plain", "aria-label": "Dismiss this message", onclick: () => note.remove()}, "✕"),
  );
  document.getElementById("toasts").append(note);
  // An error stays until it is dismissed, so that users do not miss it.
  if (kind !== "bad") setTimeout(() => note.remove(), SHOWN_MS);
}

export const said = (text) => show(text, "good");

export function failed(error, what = "") {
  if (error.status === 401) return; // the sign-in page shows it
  const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  show(`${what ? `${what}: ` : ""}${error.message}${wait}`, "bad");
}

export const clearToasts = () => document.getElementById("toasts").replaceChildren();
