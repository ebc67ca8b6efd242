// Text to copy, shown with a copy button.

import {el} from "./dom.js";
import {failed, said} from "./toasts.js";

/** Copies a text. Browsers offer the clipboard only over https and on localhost; elsewhere, a legacy method works. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", {class: "unseen", readonly: true}, text);
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("This browser does not allow copying. Select the text instead.");
}

export function copyButton(text, what) {
  return el(
    "button",
    {
      type: "button",
      "aria-label": `Copy ${what}`,
      onclick: () => copy(typeof text === "function" ? text() : text).then(() => said(`Copied ${what}.`), (error) => failed(error, "Copy")),
    },
    "Copy",
  );
}

/** A command or an address on a separate line. */
export const copyLine = (text, what) => el("div", {class: "copy-line"}, el("code", {}, text), copyButton(text, what));
