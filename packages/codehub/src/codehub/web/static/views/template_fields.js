// The template fields of a form: the selection, and the parameters by type.

import {el, field, freshId} from "../dom.js";
import {sentence} from "../words.js";

/** One parameter as a labelled input, with `value` if given. */
function parameterField(parameter, value) {
  const name = `parameter:${parameter.name}`;
  const shown = value ?? parameter.default;
  if (parameter.type === "switch") {
    const input = el("input", {type: "checkbox", name, id: freshId("parameter"), checked: shown === true});
    return el("div", {class: "check"}, input, el("label", {for: input.id}, parameter.description || parameter.name));
  }
  const input = inputOf(parameter, name, shown);
  return field(parameter.name, input, [parameter.description && sentence(parameter.description), allowed(parameter)].filter(Boolean).join(" "));
}

function inputOf(parameter, name, shown) {
  if (parameter.type === "choice") {
    const unset = parameter.required ? [el("option", {value: ""}, "Choose…")] : [];
    const options = parameter.choices.map((choice) => el("option", {value: choice, selected: choice === shown}, choice));
    return el("select", {name, required: parameter.required}, unset, options);
  }
  const common = {name, required: parameter.required, autocomplete: "off", value: shown ?? ""};
  if (parameter.type === "number") return el("input", {...common, type: "number", step: "any", min: parameter.min, max: parameter.max});
  // The server checks the pattern: its regular expressions differ slightly from a browser's.
  return el("input", {...common, type: "text", maxlength: 256, spellcheck: "false"});
}

function allowed(parameter) {
  if (parameter.type === "text" && parameter.pattern) return `Must match ${parameter.pattern}.`;
  if (parameter.type !== "number") return "";
  if (parameter.min !== null && parameter.max !== null) return `From ${parameter.min} to ${parameter.max}.`;
  if (parameter.min !== null) return `At least ${parameter.min}.`;
  return parameter.max !== null ? `At most ${parameter.max}.` : "";
}

export const parameterFields = (parameters, values = {}) => parameters.map((each) => parameterField(each, values[each.name]));

/** The values in a form's data in the API's format. Empty fields use their default. */
export function parameterValues(parameters, data) {
  const values = {};
  for (const {name, type} of parameters) {
    const given = data.get(`parameter:${name}`);
    if (type === "switch") values[name] = given === "on";
    else if (given) values[name] = type === "number" ? Number(given) : given;
  }
  return values;
}

/**
 * Selects a template, pushed ones first and then the profiles. `body(data)` returns its part of a create request. `wanted`
 * is the name that a link requested. `changed` is called with the template that is chosen.
 */
export function templatePicker(templates, defaultProfile, wanted, changed) {
  const pushed = templates.filter((each) => !each.builtin);
  const profiles = templates.filter((each) => each.builtin);
  const parameters = el("div");
  const hint = el("p", {class: "hint"});
  const chosen = () => templates.find((each) => each.name === select.value);
  const isOffered = templates.some((each) => each.name === wanted);
  const first = isOffered ? wanted : defaultProfile;
  const missing = wanted && !isOffered ? el("p", {class: "problem", role: "alert"}, `There is no template named “${wanted}” for you. Choose another one.`) : null;
  const option = (each) => el("option", {value: each.name, selected: each.name === first}, each.name);
  const group = (label, items) => (items.length ? [el("optgroup", {label}, items.map(option))] : []);
  const select = el(
    "select",
    {name: "template", onchange: update},
    pushed.length ? [...group("Templates", pushed), ...group("Profiles", profiles)] : profiles.map(option),
  );

  function update() {
    const template = chosen();
    hint.textContent = template?.description ?? "";
    hint.hidden = !hint.textContent;
    parameters.replaceChildren(...parameterFields(template?.parameters ?? []));
    changed(template);
  }

  update();
  const label = pushed.length ? "Template" : "Profile";
  return {
    node: el("div", {}, missing, field(label, select, pushed.length ? "" : "The IDE of the workspace."), hint, parameters),
    chosen,
    body(data) {
      const template = chosen();
      if (!template) return {};
      if (template.builtin) return {image_ref: template.name};
      return {template: template.name, parameters: parameterValues(template.parameters, data)};
    },
  };
}
