// Finds the matching parts of a line. The daemon returns only the lines.

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");

export function pattern(query, mode) {
  if (!query) return null;
  // Like the daemon: text with a capital letter is case-sensitive, names of symbols never are.
  const sensitive = mode !== "symbol" && /\p{Lu}/u.test(query);
  const source = mode === "regex" ? query : mode === "words" ? `(?<![\\p{L}\\p{N}_])${escaped(query)}(?![\\p{L}\\p{N}_])` : escaped(query);
  for (const flags of ["gu", "g"]) {
    try {
      return new RegExp(source, sensitive ? flags : `${flags}i`);
    } catch {
      // ripgrep's regex syntax has elements that JavaScript's lacks. The line is then shown without highlighting.
    }
  }
  return null;
}

// A line as shown in a list: without its indentation, starting shortly before the first match.
const LONGEST = 400;
const BEFORE = 60;

export function excerpt(text, expression) {
  const line = text.trimStart();
  let first = -1;
  if (expression) {
    expression.lastIndex = 0;
    first = expression.exec(line)?.index ?? -1;
  }
  const cut = first > BEFORE ? first - BEFORE / 2 : 0;
  return (cut ? "…" : "") + line.slice(cut, cut + LONGEST) + (line.length > cut + LONGEST ? "…" : "");
}

export function marked(text, expression) {
  const parts = [];
  let last = 0;
  if (expression) {
    expression.lastIndex = 0;
    for (const found of text.matchAll(expression)) {
      if (found[0] === "") continue;
      parts.push(text.slice(last, found.index));
      const mark = document.createElement("mark");
      mark.textContent = found[0];
      parts.push(mark);
      last = found.index + found[0].length;
    }
  }
  parts.push(text.slice(last));
  return parts;
}
