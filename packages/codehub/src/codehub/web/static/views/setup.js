// The setup of a workspace: one line on its card, and its steps with their output on its page.

import {post, text as fetchText} from "../api.js";
import {formDialog} from "../dialogs.js";
import {el, setHidden, setProse, setText} from "../dom.js";
import * as store from "../store.js";
import {state} from "../store.js";
import {failed} from "../toasts.js";
import {timeOfDay} from "../words.js";
import {repositoryFields} from "./repository.js";

const MARKS = {done: "good", failed: "bad", running: "busy", pending: "calm", skipped: "calm"};

/** The line, its progress bar and the retry button. */
export function setupLine(current) {
  const text = el("p", {class: "setup quiet", hidden: true});
  const bar = el("progress", {max: 100, "aria-label": "Progress of the setup", hidden: true});
  const retry = el("button", {type: "button", hidden: true, onclick: () => again(current(), retry)}, "Try again");
  const skip = el("button", {type: "button", hidden: true, onclick: () => skipStep(current(), skip)}, "Skip this step");
  const change = el("button", {type: "button", hidden: true, onclick: () => changeRepository(current())}, "Change repository");
  return {
    nodes: [text, bar],
    buttons: [skip, retry, change],
    update(workspace) {
      const setup = workspace.phase === "RUNNING" || workspace.operation === "STARTING" ? workspace.setup : null;
      const shown = setup && (setup.text || setup.state === "running");
      setHidden(text, !shown);
      const slow = setup && slowStep(setup, Date.now());
      setProse(text, [setup?.text, slow?.stops_at && `It is stopped at ${timeOfDay(slow.stops_at)} if it still runs; the next steps wait for it.`].filter(Boolean).join(". "));
      setHidden(skip, !slow || workspace.phase !== "RUNNING");
      text.classList.toggle("todo", setup?.state === "failed");
      setHidden(bar, setup?.state !== "running" || !setup.text);
      if (setup?.percent == null) bar.removeAttribute("value");
      else bar.value = setup.percent;
      setHidden(retry, !setup?.retry || setup.state === "running" || workspace.phase !== "RUNNING");
      setText(retry, setup?.retry || "Try again");
      setHidden(change, retry.hidden || !setup.may_change_repo || workspace.owner !== state.user?.username);
    },
  };
}

// A step that ends soon needs no button, which would only flash.
const SLOW_MS = 10_000;
const slowStep = (setup, now) => setup.steps.find((each) => each.may_skip && each.started_at && now - Date.parse(each.started_at) > SLOW_MS);

async function skipStep(workspace, button) {
  const step = slowStep(workspace.setup, Date.now());
  if (!step || button.hasAttribute("aria-busy")) return;
  button.setAttribute("aria-busy", "true");
  try {
    await post(`workspaces/${workspace.id}:skip-setup`, {step: step.id});
  } catch (error) {
    failed(error, `${step.title} of ${workspace.name}`);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

async function again(workspace, button) {
  if (button.hasAttribute("aria-busy")) return;
  button.setAttribute("aria-busy", "true");
  try {
    store.putIfKnown(await post(`workspaces/${workspace.id}:retry-setup`));
  } catch (error) {
    failed(error, `Setup of ${workspace.name}`);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

/** Asks for another repository or branch than the one that could not be cloned, and clones it. */
async function changeRepository(workspace) {
  const {url, ref, path} = workspace.repo;
  const fields = repositoryFields({repo: url, ref, path});
  const updated = await formDialog({
    title: `Repository of ${workspace.name}`,
    body: fields.node,
    yes: "Clone",
    submit: () => post(`workspaces/${workspace.id}:retry-setup`, fields.value()),
  });
  if (updated) store.putIfKnown(updated);
}

/** Steps, unsupported parts of devcontainer.json, and the output. */
export function setupPanel(id) {
  const steps = el("ul", {class: "conditions"});
  const ignored = el("ul", {class: "quiet"});
  const error = el("p", {class: "warning", hidden: true});
  const about = el("p", {class: "quiet"}, "These parts of devcontainer.json have no effect here:");
  const output = el("pre", {class: "logs", tabindex: "0", "aria-label": "Output of the setup", hidden: true});
  const show = el("button", {type: "button", onclick: load}, "Show output");
  const node = el("section", {class: "card", hidden: true}, el("h2", {}, "Setup"), steps, error, about, ignored, el("div", {class: "row actions"}, show), output);

  async function load() {
    try {
      output.textContent = (await fetchText(`workspaces/${id}/setup-log?wake=false`)) || "Nothing was printed.";
    } catch (error) {
      output.textContent = error.status === 409 ? "The output can be read while the workspace runs." : error.message;
    }
    output.hidden = false;
  }

  return {
    node,
    update(workspace) {
      const setup = workspace.setup;
      setHidden(node, !setup || (!setup.steps.length && !setup.ignored.length && !setup.error));
      if (!setup) return;
      steps.replaceChildren(...setup.steps.map(step));
      setText(error, setup.error ?? "");
      setHidden(error, !setup.error);
      setHidden(about, !setup.ignored.length);
      ignored.replaceChildren(...setup.ignored.map((each) => setProse(el("li"), `${each.key}: ${each.reason}`)));
      if (!output.hidden && setup.state === "running") load();
    },
  };
}

function step(each) {
  const notes = [each.message, ...each.notes].filter(Boolean).join(" ");
  const often = each.once ? "" : " (at each start)";
  return el("li", {}, el("span", {class: "badge", "data-tone": MARKS[each.state]}, each.state), el("span", {}, ` ${each.title}${often} `), setProse(el("span", {class: "quiet"}), notes));
}
