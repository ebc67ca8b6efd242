// Builds elements. Text is never interpreted as markup, because it comes from untrusted files.

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** @returns {any} The element, whatever its kind. */
export const byId = (id) => document.getElementById(id);

export function table(head, rows) {
  return element(
    "table", {},
    head ? element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))) : null,
    element("tbody", {}, ...rows),
  );
}

export const row = (...cells) =>
  element("tr", {}, ...cells.map((cell) => (cell instanceof Node ? cell : element("td", {}, String(cell ?? "")))));
