// The ways into a workspace besides its IDE: what listens, what runs, and how to connect with SSH.

import {get, patch, post} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, field} from "../dom.js";
import {failed} from "../toasts.js";

const SHARES = {owner: "only me", users: "anyone signed in", link: "anyone with a link"};

/** A card with a list that is asked for while the workspace runs, and hidden while it does not. */
function listPanel(title, empty, load, row) {
  const list = el("ul", {class: "doors"});
  const node = el("section", {class: "card", hidden: true}, el("h2", {}, title), list);
  let shown = "";
  return {
    node,
    async refresh(runs) {
      node.hidden = !runs;
      if (!runs) return;
      try {
        const {items} = await load();
        // Left alone while nothing changed: somebody may be choosing from a list in it.
        const seen = JSON.stringify(items);
        if (seen === shown) return;
        shown = seen;
        list.replaceChildren(...(items.length ? items.map(row) : [el("li", {class: "quiet"}, empty)]));
      } catch {
        node.hidden = true;
      }
    },
  };
}

export function portsPanel(id) {
  return listPanel(
    "Ports",
    "Nothing listens in this workspace.",
    () => get(`workspaces/${id}/ports?wake=0`),
    (port) => {
      const share = el("select", {"aria-label": `Share port ${port.port} with`}, ...Object.entries(SHARES).map(([value, text]) => el("option", {value}, text)));
      share.value = port.share;
      share.addEventListener("change", async () => {
        try {
          await patch(`workspaces/${id}/ports/${port.port}`, {share: share.value});
          if (share.value === "link") await showLink(id, port.port);
        } catch (error) {
          share.value = port.share;
          failed(error, `Share port ${port.port}`);
        }
      });
      return el(
        "li",
        {class: "row"},
        el("a", {href: port.url, target: "_blank", rel: "noopener"}, `${port.port}`),
        el("span", {class: "quiet"}, port.process ?? ""),
        share,
      );
    },
  );
}

async function showLink(id, port) {
  const link = await post(`workspaces/${id}/ports/${port}/links`, {expires_in_s: 86400});
  const address = el("input", {readonly: true, value: link.url, class: "secret", onfocus: (event) => event.target.select()});
  await formDialog({
    title: `A link to port ${port}`,
    body: el("div", {}, field("Address", address, "Opens this port for whoever has it, for one day. Sharing less revokes it.")),
    yes: "I have copied it",
    submit: () => true,
  });
}

export function processesPanel(id) {
  return listPanel(
    "Processes",
    "Nothing was started by exec.",
    async () => {
      const {items} = await get(`workspaces/${id}/processes?wake=0`);
      return {items: items.filter((process) => process.state === "running")};
    },
    (process) => el("li", {class: "row"}, el("code", {}, process.command), el("span", {class: "quiet"}, `${Math.round(process.cpu_percent)} % of a core`)),
  );
}

export function sshPanel(current) {
  const command = el("code", {});
  const node = el(
    "section",
    {class: "card"},
    el("h2", {}, "SSH"),
    el("p", {class: "quiet"}, "Once on your machine: ", el("code", {}, "codehub login"), ", then ", el("code", {}, "codehub config-ssh"), ". After that:"),
    el("p", {}, command),
  );
  const name = () => {
    const workspace = current();
    return workspace && /^[a-z0-9][a-z0-9-]*$/.test(workspace.name) ? workspace.name : workspace?.id ?? "";
  };
  // Filled in when it is first seen: the workspace may not be known when the page is made.
  new IntersectionObserver(() => (command.textContent = `ssh ${name()}.codehub`)).observe(node);
  return node;
}
