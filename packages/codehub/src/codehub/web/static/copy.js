// Text to copy, shown with a copy button.

import {el, setText} from "./dom.js";
import {failed, said} from "./toasts.js";

const SHOWN_MS = 2_000;

/** Copies a text. Browsers offer the clipboard only over https and on localhost; elsewhere, a legacy method works. */
async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", {class: "unseen", readonly: true}, text);
  // Behind an open dialog nothing can be selected.
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("This browser does not allow copying. Select the text instead.");
}

/** Says so on the button too: messages of the page are behind an open dialog. */
export function copyButton(text, what, label = "Copy") {
  const button = el("button", {type: "button", "aria-label": `Copy ${what}`, onclick: () => copy(text).then(done, (error) => failed(error, "Copy"))}, label);
  function done() {
    said(`Copied ${what}.`);
    setText(button, "Copied");
    setTimeout(() => setText(button, label), SHOWN_MS);
  }
  return button;
}

/** A command or an address on a separate line. */
export const copyLine = (text, what) => el("div", {class: "copy-line"}, el("code", {}, text), copyButton(text, what));
