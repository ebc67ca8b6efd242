// What xterm.js shows: reads a case per line, {cols, rows, steps}, and prints the state at each step `true`. A step is also
// bytes (base64) or a new size [cols, rows]. Called with the paths of xterm.mjs and of the page's char_width.js.

import {createInterface} from "node:readline";
import {pathToFileURL} from "node:url";

const [xterm, widths] = process.argv.slice(2);
const {Terminal} = await import(pathToFileURL(xterm));
const {characterWidths} = await import(pathToFileURL(widths));

function cellsOf(line, cols) {
  const cells = [];
  for (let x = 0; x < cols; x++) {
    const cell = line.getCell(x);
    const flags = [cell.isBold(), cell.isDim(), cell.isItalic(), cell.isBlink(), cell.isInverse(), cell.isInvisible(), cell.isStrikethrough(), cell.isOverline()].map((flag) => (flag ? 1 : 0)).join("");
    const colours = [cell.getFgColorMode(), cell.getFgColor(), cell.getBgColorMode(), cell.getBgColor()];
    const underline = cell.isUnderline() ? [cell.getUnderlineStyle() || 1, cell.getUnderlineColor()] : 0;
    // A wide character without its right half, which was cut off or overwritten, cannot be drawn again.
    const whole = cell.getWidth() !== 2 || (x + 1 < cols && line.getCell(x + 1).getWidth() === 0);
    const half = cell.getWidth() === 0 && !(x > 0 && line.getCell(x - 1).getWidth() === 2);
    cells.push(JSON.stringify([whole && !half ? cell.getChars() || (cell.getWidth() ? " " : "") : " ", flags, colours, underline]));
  }
  return cells;
}

function rowsOf(terminal, buffer, first) {
  const rows = [];
  for (let y = first; y < buffer.length; y++) {
    const line = buffer.getLine(y);
    // The first line continues nothing that is still there.
    rows.push({wrapped: y > first && line.isWrapped, cells: cellsOf(line, terminal.cols)});
  }
  return rows;
}

function stateOf(terminal) {
  const {active, normal, alternate} = terminal.buffer;
  const {coreService, coreMouseService} = terminal._core;
  const {cursorStyle, cursorBlink} = coreService.decPrivateModes;
  return {
    shown: active.type,
    cursor: [active.cursorX, active.cursorY],
    main: rowsOf(terminal, normal, 0),
    alternate: active.type === "alternate" ? rowsOf(terminal, alternate, alternate.baseY) : [],
    modes: {...terminal.modes, cursorStyle, cursorBlink, hidden: coreService.isCursorHidden, mouseEncoding: coreMouseService.activeEncoding, blink: terminal.options.cursorBlink, newline: terminal.options.convertEol},
  };
}

for await (const text of createInterface({input: process.stdin})) {
  const {cols, rows, steps} = JSON.parse(text);
  const terminal = new Terminal({cols, rows, scrollback: 5000, allowProposedApi: true});
  terminal.unicode.register(characterWidths);
  terminal.unicode.activeVersion = characterWidths.version;
  const states = [];
  for (const step of steps) {
    if (step === true) states.push(stateOf(terminal));
    else if (Array.isArray(step)) terminal.resize(...step);
    else await new Promise((drawn) => terminal.write(Buffer.from(step, "base64"), drawn));
  }
  terminal.dispose();
  process.stdout.write(`${JSON.stringify(states)}\n`);
}
