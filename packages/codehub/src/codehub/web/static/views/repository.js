// The part of the dialog for the repository: its URL, and its branches once the URL is known.

import {post} from "../api.js";
import {el, field, freshId, setHidden, setProse} from "../dom.js";
import {sentence} from "../words.js";

const PAUSE_MS = 500;

/**
 * {node, value()}. Branches are suggestions: any typed value is accepted. `named` is called with the repository's name when
 * the URL changes.
 */
export function repositoryFields(prefilled, named = (_name) => {}) {
  const url = el("input", {name: "repo_url", value: prefilled.repo ?? "", autocomplete: "off", spellcheck: "false"});
  const choices = el("datalist", {id: freshId("branches")});
  const ref = el("input", {name: "repo_ref", value: prefilled.ref ?? "", autocomplete: "off", spellcheck: "false", list: choices.id});
  const said = el("p", {class: "quiet", role: "status"});
  const node = el(
    "div",
    {},
    field("Repository", url, "It is cloned into the workspace, and the IDE opens there."),
    said,
    field("Branch, tag or commit", ref, "Empty: the default branch."),
    choices,
  );
  let timer = 0;
  let latest = 0;

  function say(text, wrong = false) {
    setProse(said, text);
    said.className = wrong ? "warning" : "quiet";
    setHidden(said, !text);
  }

  async function look() {
    const text = url.value.trim();
    const mine = ++latest;
    choices.replaceChildren();
    ref.placeholder = "";
    say(text ? "Looking for branches…" : "");
    if (!text) return;
    try {
      const found = await post("repositories/branches", {url: text});
      if (mine !== latest) return;
      choices.replaceChildren(...found.items.map((name) => el("option", {value: name})));
      ref.placeholder = found.default;
      say(found.items.length === 1 ? "1 branch." : `${found.items.length} branches.`);
    } catch (error) {
      if (mine === latest) say(sentence(error.message), true);
    }
  }

  url.addEventListener("input", () => {
    named(nameOf(url.value.trim()));
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  });
  say("");
  if (url.value) look();
  return {
    node,
    /** The repository that is cloned if none is given: the template's. */
    suggest: (address) => (url.placeholder = address || "optional"),
    value: () => {
      const text = url.value.trim();
      return text ? {repo: {url: text, ref: ref.value.trim(), path: prefilled.path ?? ""}} : {};
    },
  };
}

/** The last part of a URL's path, as git names the clone. */
export function nameOf(url) {
  const last = /[/:]([^/:]+?)(?:\.git)?\/?$/.exec(url)?.[1] ?? "";
  try {
    return decodeURIComponent(last);
  } catch {
    return last; // a stray % while the URL is typed
  }
}
