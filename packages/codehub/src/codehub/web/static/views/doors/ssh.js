// SSH: the commands to paste, and the workspace's host key.

import {get, post} from "../../api.js";
import {copyLine} from "../../copy.js";
import {el} from "../../dom.js";
import {failed} from "../../toasts.js";

/** The workspace's name on the command line: its name if that can be a host name, else its id. */
export const sshName = (workspace) => (workspace && /^[a-z0-9][a-z0-9-]*$/.test(workspace.name) ? workspace.name : (workspace?.id ?? ""));

export function sshPage({id, current}) {
  const key = el("div");
  const commands = el("ol", {class: "steps"});
  const node = el(
    "div",
    {},
    el("section", {class: "card"}, el("h2", {}, "Connect with SSH"), commands),
    el("section", {class: "card"}, el("h2", {}, "Host key"), key, el("p", {class: "hint"}, "The workspace keeps this key. ", el("code", {}, "codehub config-ssh"), " checks it on every connection.")),
  );

  function showKey(found, hasKeys = true) {
    if (found.fingerprint) key.replaceChildren(copyLine(found.fingerprint, "the fingerprint"));
    else if (hasKeys) key.replaceChildren(el("p", {class: "quiet"}, "It is created at the first connection."), el("button", {type: "button", onclick: prepare}, "Create it now"));
    else key.replaceChildren(el("p", {class: "quiet"}, "It is created at the first connection. You have no SSH key here yet: ", el("code", {}, "codehub config-ssh"), " creates one, or ", el("a", {href: "#/account"}, "add yours"), "."));
  }

  async function prepare(event) {
    event.target.setAttribute("aria-busy", "true");
    try {
      showKey(await post(`workspaces/${id}/ssh`));
    } catch (error) {
      failed(error, "SSH");
    } finally {
      event.target.removeAttribute("aria-busy");
    }
  }

  return {
    node,
    worksAsleep: true,
    async begin() {
      const host = `${sshName(current())}.codehub`;
      commands.replaceChildren(
        el("li", {}, "Once on your machine, sign in and set up SSH:", copyLine(`codehub login ${location.origin} && codehub config-ssh`, "the commands that set up SSH")),
        el("li", {}, "Connect. This wakes the workspace if it sleeps:", copyLine(`ssh ${host}`, "the SSH command")),
        el("li", {}, "In VS Code, Cursor or JetBrains Gateway, connect to the host ", el("code", {}, host), "."),
        el("li", {}, "Copy files:", copyLine(`scp FILE ${host}:`, "the scp command")),
      );
      try {
        const [found, keys] = await Promise.all([get(`workspaces/${id}/ssh`), get("keys")]);
        showKey(found, keys.items.length > 0);
      } catch (error) {
        key.replaceChildren(el("p", {class: "quiet"}, error.message));
      }
    },
  };
}
