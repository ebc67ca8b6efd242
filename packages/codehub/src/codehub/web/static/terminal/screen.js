// xterm.js in the page: its size, colours and keys, and the terminal it shows.

import {attach} from "./attachment.js";
import {characterWidths} from "./char_width.js";

const THEMES = {
  light: {background: "#ffffff", foreground: "#1b1f27", cursor: "#1b1f27", cursorAccent: "#ffffff", selectionBackground: "#b9c9ff", black: "#1b1f27", red: "#b01824", green: "#0b6b3a", yellow: "#7a4b00", blue: "#2449c8", magenta: "#8b2f97", cyan: "#0f6674", white: "#565e6c", brightBlack: "#565e6c", brightRed: "#c9303c", brightGreen: "#1a7f4b", brightYellow: "#8f6200", brightBlue: "#3b62e0", brightMagenta: "#a13fae", brightCyan: "#157a8a", brightWhite: "#12151b"},
  dark: {background: "#12151b", foreground: "#e6e9ef", cursor: "#e6e9ef", cursorAccent: "#12151b", selectionBackground: "#3a4d80"},
};
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Queries that a program sends to its terminal. With several viewers, the focused one answers. */
function answerOnlyInFocus(terminal) {
  const leaveOut = () => !document.hasFocus();
  const {parser} = terminal;
  for (const id of [{final: "c"}, {prefix: ">", final: "c"}, {prefix: "=", final: "c"}, {final: "n"}, {prefix: "?", final: "n"}, {intermediates: "$", final: "p"}, {prefix: "?", intermediates: "$", final: "p"}]) {
    parser.registerCsiHandler(id, leaveOut);
  }
  parser.registerDcsHandler({intermediates: "$", final: "q"}, leaveOut);
  for (const id of [4, 10, 11, 12]) parser.registerOscHandler(id, (data) => data.endsWith("?") && leaveOut());
}

/** Shows one terminal at a time in `place`. `say` is called with messages about the connection, `leave` to move the focus out of it. */
export async function makeScreen(place, version, say, leave) {
  const [{Terminal}, {FitAddon}] = await Promise.all([import(`/xterm/${version}/xterm.mjs`), import(`/xterm/${version}/addon-fit.mjs`)]);
  const terminal = new Terminal({
    fontFamily: "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace",
    fontSize: 14,
    scrollback: 5000,
    theme: dark.matches ? THEMES.dark : THEMES.light,
    minimumContrastRatio: 4.5,
    screenReaderMode: false,
    macOptionIsMeta: true,
    allowProposedApi: true, // for the widths
  });
  terminal.unicode.register(characterWidths);
  terminal.unicode.activeVersion = characterWidths.version;
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(place);
  answerOnlyInFocus(terminal);
  dark.addEventListener("change", () => (terminal.options.theme = dark.matches ? THEMES.dark : THEMES.light));

  let shown = null;
  let control = false; // the next key is a control character: for keyboards that have no Ctrl
  let controlDone = () => {};
  let leaving = false;

  function typed(text) {
    if (control && text.length === 1) {
      control = false;
      controlDone();
      text = String.fromCharCode(text.toUpperCase().charCodeAt(0) & 31);
    }
    shown?.type(text);
  }
  terminal.onData(typed);
  terminal.onBinary((text) => shown?.typeBytes(text));
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.type === "keydown" && event.ctrlKey && event.shiftKey && event.code === "KeyC" && terminal.hasSelection()) {
      navigator.clipboard?.writeText(terminal.getSelection());
      event.preventDefault();
      return false;
    }
    // Tab is for the program: without another key, keyboard users could not get out of the terminal. The focus moves when
    // the key is released: xterm.js ignores inserted text until it has seen that.
    if (event.type === "keydown" && event.ctrlKey && event.code === "F6") {
      event.preventDefault();
      leaving = true;
      return false;
    }
    if (event.type === "keyup" && event.code === "F6" && leaving) {
      leaving = false;
      leave();
      return false;
    }
    return true;
  });

  /** Fits the available space and reports the size to the program. The viewer that was resized or focused last decides. */
  function takeRoom() {
    if (!shown || document.hidden) return;
    const room = fit.proposeDimensions();
    if (!room || !Number.isFinite(room.cols) || room.cols < 2 || room.rows < 1) return;
    const cols = Math.min(room.cols, 1000);
    const rows = Math.min(room.rows, 1000);
    if (cols === terminal.cols && rows === terminal.rows) return;
    terminal.resize(cols, rows);
    shown.resize(cols, rows);
  }
  new ResizeObserver(takeRoom).observe(place);
  addEventListener("focus", takeRoom);
  document.addEventListener("visibilitychange", takeRoom);

  return {
    terminal,
    /** Columns and rows for a new terminal. */
    room() {
      const room = fit.proposeDimensions();
      return room?.cols > 1 ? {cols: Math.min(room.cols, 1000), rows: Math.min(room.rows, 1000)} : {cols: 80, rows: 24};
    },
    show(path) {
      shown?.close();
      terminal.reset();
      say("connecting");
      const mine = attach(path, {
        screen(cols, rows, bytes, drawn) {
          terminal.reset();
          terminal.resize(cols, rows);
          terminal.write(bytes, () => {
            drawn();
            if (shown === mine) takeRoom();
          });
        },
        output: (bytes, drawn) => terminal.write(bytes, drawn),
        resized: (cols, rows) => terminal.resize(cols, rows),
        connected: () => say("connected"),
        away: () => say("away"),
        ended: (exitCode) => say("ended", exitCode),
        refused: (status, reason) => say("refused", status, reason),
        tooLong: () => say("tooLong"),
      });
      shown = mine;
      terminal.focus();
    },
    clear() {
      shown?.close();
      shown = null;
      terminal.reset();
    },
    press(sequence) {
      shown?.type(sequence);
      terminal.focus();
    },
    /** Toggles Ctrl for the next key; `done` is called after that key. */
    holdControl(done) {
      control = !control;
      controlDone = done;
      terminal.focus();
      return control;
    },
  };
}
