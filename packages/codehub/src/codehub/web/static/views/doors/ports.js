// Ports: those that listen in the workspace, who may open them, and their links.

import {get, patch, post, remove} from "../../api.js";
import {copyButton, copyLine} from "../../copy.js";
import {ask, formDialog, showDialog} from "../../dialogs.js";
import {el, field, setText} from "../../dom.js";
import {failed} from "../../toasts.js";
import {clock} from "../../words.js";
import {sshName} from "./ssh.js";

const SHARES = {owner: "Only me", users: "Anyone signed in", link: "Anyone with a link"};
const LIVES = [[3600, "1 hour"], [86_400, "1 day"], [604_800, "7 days"], [2_592_000, "30 days"]];

export function portsPage({id, current}) {
  const list = el("ul", {class: "doors"});
  const example = el("p", {class: "hint"});
  const node = el("section", {class: "card"}, el("h2", {}, "Ports"), list, example);
  let shown = "";
  const label = (port) => current()?.setup?.port_labels?.[port] ?? "";

  function row(port) {
    const select = el("select", {"aria-label": `Who may open port ${port.port}`}, Object.entries(SHARES).map(([value, text]) => el("option", {value}, text)));
    select.value = port.share;
    const links = el("ul", {class: "links"});
    const makeLink = el("button", {type: "button", hidden: port.share !== "link", onclick: () => newLink(port, links)}, "New link");
    select.addEventListener("change", async () => {
      try {
        await patch(`workspaces/${id}/ports/${port.port}`, {share: select.value});
        port.share = select.value;
      } catch (error) {
        failed(error, `Share port ${port.port}`);
      }
      select.value = port.share;
      makeLink.hidden = port.share !== "link";
      await showLinks(port, links);
    });
    showLinks(port, links);
    return el(
      "li",
      {class: "port", "data-port": port.port},
      el(
        "div",
        {class: "row"},
        el("a", {href: port.url, target: "_blank", rel: "noopener", class: "button primary", "aria-label": `Open port ${port.port} in a new tab`}, `Open ${port.port}`),
        label(port.port) && el("strong", {}, label(port.port)),
        el("span", {class: "quiet"}, port.process ?? ""),
        copyButton(port.url, `the address of port ${port.port}`, "Copy address"),
        select,
        makeLink,
      ),
      links,
      copyLine(`codehub port-forward ${sshName(current())} ${port.port}`, "the command that forwards it to your machine"),
    );
  }

  async function showLinks(port, place) {
    if (port.share !== "link") return place.replaceChildren();
    try {
      const {items} = await get(`workspaces/${id}/ports/${port.port}/links`);
      place.replaceChildren(...items.map((link) => el("li", {class: "row"}, el("span", {class: "quiet"}, `A link made ${clock(link.created_at)}, good until ${clock(link.expires_at)}`), el("button", {type: "button", class: "danger", onclick: () => revoke(port, link, place)}, "Revoke"))));
    } catch (error) {
      place.replaceChildren(el("li", {class: "quiet"}, error.message));
    }
  }

  async function revoke(port, link, place) {
    if (!(await ask({title: `Revoke this link to port ${port.port}?`, text: "Whoever has it can no longer open the port.", yes: "Revoke", danger: true}))) return;
    try {
      await remove(`workspaces/${id}/ports/${port.port}/links/${link.id}`);
    } catch (error) {
      failed(error, "Revoke the link");
    }
    await showLinks(port, place);
  }

  async function newLink(port, place) {
    const life = el("select", {name: "life"}, LIVES.map(([value, text]) => el("option", {value}, text)));
    life.value = "86400";
    const made = await formDialog({
      title: `A link to port ${port.port}`,
      body: field("Valid for", life, "Anyone who has the link can open this port, and nothing else of the workspace."),
      yes: "Make link",
      submit: (data) => post(`workspaces/${id}/ports/${port.port}/links`, {expires_in_s: Number(data.get("life"))}),
    });
    if (!made) return;
    await showLinks(port, place);
    const address = el("input", {readonly: true, value: made.url, class: "secret", onfocus: (event) => event.target.select()});
    await showDialog({
      title: `Your link to port ${port.port}`,
      body: el("div", {}, field("Address", address, "Copy it now. It is shown only once."), copyButton(made.url, "the link")),
      close: "I have copied it",
    });
  }

  return {
    node,
    async refresh() {
      setText(example, "Servers on any address of the workspace are found, localhost included.");
      try {
        const {items} = await get(`workspaces/${id}/ports?wake=0`);
        // Not rendered again while nothing changed: the user may be choosing from a list in it.
        const expected = (current()?.expected_ports ?? []).filter((port) => !items.some((item) => item.port === port));
        const seen = JSON.stringify([items, expected, current()?.setup?.port_labels]);
        if (seen === shown) return;
        shown = seen;
        const waiting = expected.map((port) => el("li", {class: "quiet"}, `Port ${port}${label(port) && ` (${label(port)})`} is expected. Nothing listens on it yet.`));
        if (items.length || waiting.length) return list.replaceChildren(...items.map(row), ...waiting);
        list.replaceChildren(el("li", {class: "quiet"}, "Nothing listens in this workspace. Start a server in it, for example ", el("code", {}, "python3 -m http.server 8000"), "."));
      } catch (error) {
        shown = "";
        list.replaceChildren(el("li", {class: "quiet"}, error.message));
      }
    },
  };
}
