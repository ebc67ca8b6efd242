// Creates and updates elements. Text is always set as text: nothing here can turn data into markup.

/**
 * el("button", {class: "primary", onclick: f, "aria-label": "…"}, "Open", …) creates an element. Properties starting with
 * "on" are listeners; true sets an empty attribute; false, null and undefined omit it.
 */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else setAttribute(node, name, value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export function setAttribute(node, name, value) {
  if (value === false || value === null || value === undefined) node.removeAttribute(name);
  else if (value === true) node.setAttribute(name, "");
  else if (node.getAttribute(name) !== String(value)) node.setAttribute(name, String(value));
}

/** Changes a text only if it differs, to avoid needless screen reader announcements and layout. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Sets a sentence of the server as text, with what stands between backquotes as code, and the account page as a link.
 * Returns the element.
 */
export function setProse(node, text) {
  if (node.dataset.prose === text) return node;
  node.dataset.prose = text;
  node.replaceChildren(
    ...text.split(/(`[^`]+`|your account page)/).map((part) => {
      if (part === "your account page") return el("a", {href: "#/account"}, part);
      return /^`.+`$/.test(part) ? el("code", {}, part.slice(1, -1)) : part;
    }),
  );
  return node;
}

/** Hides or shows an element; focus never stays on a hidden one. */
export function setHidden(node, hidden, focusInstead = null) {
  if (node.hidden === hidden) return;
  const hadFocus = hidden && node.contains(document.activeElement);
  node.hidden = hidden;
  if (hadFocus && focusInstead) focusInstead.focus({preventScroll: true});
}

/**
 * Makes `parent`'s children one component per item, in order, reusing existing ones. `components` is a Map from key to
 * {node, update(item)} that lives as long as the list. Creates at most `atMost` new ones; returns whether more are needed.
 */
export function reconcile(parent, components, items, keyOf, create, atMost) {
  const wanted = new Set(items.map(keyOf));
  for (const [key, component] of components) {
    if (!wanted.has(key)) {
      component.node.remove();
      components.delete(key);
    }
  }
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  let place = parent.firstChild;
  let left = atMost;
  for (const item of items) {
    const key = keyOf(item);
    let component = components.get(key);
    if (!component) {
      if (--left < 0) continue;
      component = create(item);
      components.set(key, component);
    }
    component.update(item);
    if (component.node === place) place = place.nextSibling;
    else parent.insertBefore(component.node, place);
  }
  // A card that moved keeps the focus.
  if (focused instanceof HTMLElement && focused !== document.activeElement && focused.isConnected) focused.focus({preventScroll: true});
  return left < 0;
}

let lastId = 0;
/** Returns a new id for labels and descriptions. */
export const freshId = (prefix) => `${prefix}-${++lastId}`;

/** A labelled form field, with a hint below it. */
export function field(label, input, hint = "") {
  input.id ||= freshId("field");
  const notes = hint ? el("span", {class: "hint", id: `${input.id}-hint`}, hint) : null;
  if (notes) input.setAttribute("aria-describedby", notes.id);
  return el("div", {class: "field"}, el("label", {for: input.id}, label), input, notes);
}
