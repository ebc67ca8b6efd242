// The part of the dialog for the repository: its URL, and its branches once the URL is known.

import {post} from "../api.js";
import {el, field, freshId, setText} from "../dom.js";

const PAUSE_MS = 500;

/** {node, value(), suggestedName()}. Branches are suggestions: any typed value is accepted. */
export function repositoryFields(prefilled) {
  const url = el("input", {name: "repo_url", value: prefilled.repo ?? "", autocomplete: "off", spellcheck: "false"});
  const choices = el("datalist", {id: freshId("branches")});
  const ref = el("input", {name: "repo_ref", value: prefilled.ref ?? "", autocomplete: "off", spellcheck: "false", list: choices.id});
  const said = el("p", {class: "quiet", role: "status"});
  const node = el(
    "div",
    {},
    field("Repository", url, "Optional. It is cloned into the workspace, and the IDE opens there."),
    field("Branch, tag or commit", ref, "Empty: the default branch."),
    choices,
    said,
  );
  let timer = 0;
  let latest = 0;

  async function look() {
    const text = url.value.trim();
    const mine = ++latest;
    choices.replaceChildren();
    setText(said, "");
    if (!text) return;
    setText(said, "Looking for branches…");
    try {
      const found = await post("repositories/branches", {url: text});
      if (mine !== latest) return;
      choices.replaceChildren(...found.items.map((name) => el("option", {value: name})));
      ref.placeholder = found.default;
      setText(said, found.items.length === 1 ? "1 branch." : `${found.items.length} branches.`);
    } catch (error) {
      if (mine === latest) setText(said, error.message);
    }
  }

  url.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  });
  if (url.value) look();
  return {
    node,
    value: () => {
      const text = url.value.trim();
      return text ? {repo: {url: text, ref: ref.value.trim(), path: prefilled.path ?? ""}} : {};
    },
    suggestedName: () => /([^/:]+?)(?:\.git)?\/?$/.exec(prefilled.repo ?? "")?.[1] ?? "",
  };
}
