// Shows a file around a line, with its outline.

import { getFrom } from "./api.js";
import { byId, element } from "./dom.js";
import { marked, pattern } from "./highlight.js";

// A screenful on both sides. More is requested only when the user chooses another place.
const AROUND = 400;
let asking = new AbortController();

// The text comes with or without leading line numbers.
function lines(answer) {
  const rows = answer.text.replace(/\n$/, "").split("\n");
  const numbered = rows.every((text, index) => new RegExp(`^\\s*${answer.start + index}[\\t:]`).test(text));
  return numbered ? rows.map((text) => text.replace(/^\s*\d+[\t:]/, "")) : rows;
}

function rows(answer, line, end, expression) {
  return lines(answer).map((text, index) => {
    const number = answer.start + index;
    return element(
      "div", { className: number === line ? "row here" : number > line && number <= end ? "row within" : "row" },
      element("span", { className: "number" }, String(number)),
      element("span", { className: "code" }, ...(number === line ? marked(text, expression) : [text])),
    );
  });
}

// A row of an outline is `12-30 class Store`, indented by a space for each enclosing definition.
function nested(outline) {
  const top = { children: [] };
  const around = [top];
  for (const row of outline) {
    const found = /^( *)(\d+)(?:-(\d+))? (\S+) (.*)$/.exec(row);
    if (!found) continue;
    const symbol = { line: Number(found[2]), end: Number(found[3] ?? found[2]), kind: found[4], name: found[5], children: [] };
    around.length = Math.min(around.length, found[1].length + 1);
    around[around.length - 1].children.push(symbol);
    around.push(symbol);
  }
  return top.children;
}

function entries(symbols, go) {
  return symbols.map((symbol) =>
    element(
      "li", {},
      element(
        "button", { type: "button", onclick: () => go(symbol.line, symbol.end) },
        element("span", { className: "kind" }, `${symbol.kind} `), symbol.name,
      ),
      symbol.children.length ? element("ul", {}, ...entries(symbol.children, go)) : null,
    ));
}

export async function open(workspace, path, line, end, request) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const viewer = byId("viewer");
  byId("viewer-path").textContent = path;
  viewer.hidden = false;
  document.querySelector(".columns").classList.add("split");
  const source = byId("source");
  try {
    const start = Math.max(1, line - AROUND);
    const answer = await getFrom(workspace, "read", { path, start, end: line + AROUND }, signal);
    const expression = request.kind === "search" ? pattern(request.query, request.mode) : null;
    source.replaceChildren(...rows(answer, line, end ?? line, expression));
    const here = source.querySelector(".here");
    // Scroll only the source, not the page.
    if (here) source.scrollTop = here.offsetTop - source.offsetTop - source.clientHeight / 3;
    const outline = await getFrom(workspace, "outline", { path }, signal).catch((error) => {
      if (signal.aborted) throw error;
      return { symbols: [] };
    });
    byId("outline").hidden = !outline.symbols.length;
    byId("outline").querySelector("ul").replaceChildren(...entries(nested(outline.symbols), (to, until) => open(workspace, path, to, until, request)));
  } catch (error) {
    if (!signal.aborted) source.replaceChildren(element("p", { className: "failed" }, error.message));
  }
}

export function close() {
  asking.abort();
  byId("viewer").hidden = true;
  document.querySelector(".columns").classList.remove("split");
}
