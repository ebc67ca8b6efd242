// The terminal as a panel: its page in a frame. Loaded when the panel is shown, because that may open a terminal.

import {el} from "../../dom.js";

export function terminalPage({id}) {
  const node = el("section", {class: "card terminal-panel"});
  return {
    node,
    begin: () => node.replaceChildren(el("iframe", {src: `/terminal/${id}?panel=1`, title: "Terminal", allow: "clipboard-read; clipboard-write"})),
  };
}
