// The terminal as a panel: its page, framed. It is loaded when the panel is looked at, which may open a terminal.

import {el} from "../../dom.js";

export function terminalPage({id}) {
  const node = el("section", {class: "card terminal-panel"});
  return {
    node,
    begin: () => node.replaceChildren(el("iframe", {src: `/terminal/${id}?panel=1`, title: "Terminal", allow: "clipboard-read; clipboard-write"})),
  };
}
