// Renders results: text grouped by file, symbols, files.

import { byId, element } from "./dom.js";
import { excerpt, marked, pattern } from "./highlight.js";

function hit(at, content, open) {
  return element(
    "button",
    { type: "button", className: "hit", onclick: (event) => { current(event.currentTarget); open(); } },
    element("span", { className: "at" }, String(at)),
    element("span", { className: "text" }, ...content),
  );
}

function current(chosen) {
  for (const other of byId("results").querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
  chosen.setAttribute("aria-current", "true");
}

function grouped(items) {
  const files = new Map();
  for (const item of items) files.set(item.path, [...(files.get(item.path) ?? []), item]);
  return files;
}

function named(path) {
  const cut = path.lastIndexOf("/") + 1;
  return [element("span", { className: "folder" }, path.slice(0, cut)), path.slice(cut)];
}

function card(path, hits) {
  const head = element("h2", {}, element("span", { className: "path" }, ...named(path)), element("span", { className: "count" }, String(hits.length)));
  return element("article", { className: "file" }, head, ...hits);
}

function textCards(answer, request, open) {
  const expression = pattern(request.query, request.mode);
  return [...grouped(answer.matches)].map(([path, matches]) =>
    card(path, matches.map((match) =>
      hit(match.line, marked(excerpt(match.text, expression), expression), () => open(path, match.line)))));
}

function symbolCards(answer, request, open) {
  const expression = pattern(request.query, "symbol");
  return [...grouped(answer.symbols)].map(([path, symbols]) =>
    card(path, symbols.map((symbol) => {
      const where = symbol.container ? `${symbol.container}.` : "";
      const content = [element("span", { className: "kind" }, `${symbol.kind} `), where, ...marked(symbol.name, expression)];
      return hit(symbol.line, content, () => open(path, symbol.line, symbol.end_line));
    })));
}

function fileCards(answer, request, open) {
  if (!answer.files.length) return [];
  return [element("article", { className: "file names" }, ...answer.files.map((file) => hit("", named(file.path), () => open(file.path, 1))))];
}

const SHAPES = {
  search: [textCards, (answer) => answer.total, "match", "matches"],
  symbols: [symbolCards, (answer) => answer.total ?? answer.symbols.length, "symbol", "symbols"],
  files: [fileCards, (answer) => answer.total ?? answer.files.length, "file", "files"],
};

// `more`, if there is a next page, requests and returns it.
export function show(answer, request, open, more) {
  const [cards, count, one, many] = SHAPES[request.kind];
  const shown = cards(answer, request, open);
  const total = count(answer);
  byId("results").replaceChildren(...(shown.length ? shown : [element("p", { className: "empty" }, `Nothing matches “${request.query}”.`)]));
  const files = request.kind === "files" || answer.cursor ? 0 : shown.length;
  const within = files > 1 ? ` in ${files} files` : "";
  const parts = [`${total.toLocaleString("en")} ${total === 1 ? one : many}${within}`];
  if (request.kind === "search" && answer.cursor) parts.push(`the first ${answer.matches.length} are shown`);
  if (answer.note) parts.push(answer.note);
  byId("summary").textContent = parts.join(" · ");
  if (more) offerMore(answer.matches.length, total, request, open, more);
}

function offerMore(shown, total, request, open, more) {
  const button = element("button", { type: "button", className: "more" }, `Show more (${(total - shown).toLocaleString("en")} left)`);
  button.addEventListener("click", async () => {
    button.disabled = true;
    const [answer, next] = await more();
    if (!answer) return button.remove();
    const cards = textCards(answer, request, open);
    button.replaceWith(...cards);
    cards[0]?.querySelector(".hit").focus();
    if (next) offerMore(shown + answer.matches.length, total, request, open, next);
    return undefined;
  });
  byId("results").append(button);
}

export function nothing(say) {
  byId("results").replaceChildren();
  byId("summary").textContent = say;
}

export function failed(message) {
  byId("results").replaceChildren(element("p", { className: "failed" }, message));
  byId("summary").textContent = "";
}

// Arrow keys move through the hits, starting at the search field.
export function walk(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const hits = [...byId("results").querySelectorAll(".hit")];
  const at = hits.indexOf(document.activeElement);
  const target = event.key === "ArrowDown" ? hits[at + 1] : at > 0 ? hits[at - 1] : byId("query");
  if (!target || (at < 0 && document.activeElement !== byId("query"))) return;
  event.preventDefault();
  target.focus();
}
