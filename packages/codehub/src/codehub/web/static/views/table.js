// A plain table that loads its rows and shows loading and errors.

import {el} from "../dom.js";

/**
 * `load` returns rows; `columns` are [heading, row => node or text]; `empty` is a node or text. Returns {node, refresh}.
 */
export function table({caption, columns, load, empty}) {
  const body = el("tbody");
  const refresh = async () => {
    try {
      const rows = await load();
      body.replaceChildren(...(rows.length ? rows.map(line) : [message(empty)]));
    } catch (error) {
      body.replaceChildren(message(error.message));
    }
  };
  const line = (row) => el("tr", {}, columns.map(([heading, cell]) => el("td", {"data-label": heading}, cell(row))));
  const message = (text) => el("tr", {}, el("td", {colspan: columns.length, class: "quiet"}, text));
  body.append(message("Loading…"));
  const node = el(
    "div",
    {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {}, el("caption", {class: "unseen"}, caption), el("thead", {}, el("tr", {}, columns.map(([heading]) => el("th", {scope: "col"}, heading)))), body),
  );
  refresh();
  return {node, refresh};
}
