// The two growing panels of a workspace's page: its timeline, and its live output.

import {get, stream} from "../api.js";
import {el, setText} from "../dom.js";
import {clock, moment} from "../words.js";

// More than a user scrolls through. The log of a page that is left open must not grow without limit.
const KEPT_CHARACTERS = 200_000;

export function timelinePanel(id) {
  const node = el("ol", {class: "timeline"});
  let busy = false;
  let again = false;

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const {items} = await get(`workspaces/${id}/events`);
      node.replaceChildren(...items.map(entry));
    } catch (error) {
      if (error.status !== 401) node.replaceChildren(el("li", {class: "quiet"}, error.message));
    } finally {
      busy = false;
      if (again) {
        again = false;
        refresh();
      }
    }
  }
  return {node, refresh};
}

const entry = (event) =>
  el(
    "li",
    {},
    el("time", {datetime: event.at, title: clock(event.at), class: "quiet"}, moment(event.at, Date.now())),
    el("span", {}, event.message, event.actor && event.actor !== "codehub" ? el("span", {class: "quiet"}, ` by ${event.actor}`) : null),
  );

export function logsPanel(id) {
  const text = el("pre", {class: "logs", tabindex: "0", role: "log", "aria-label": "Output of the workspace"});
  const state = el("p", {class: "quiet"}, "Not running.");
  let abort = null;

  function add(piece) {
    const atEnd = text.scrollHeight - text.scrollTop - text.clientHeight < 40;
    text.append(piece);
    if (text.textContent.length > KEPT_CHARACTERS) text.textContent = text.textContent.slice(-KEPT_CHARACTERS / 2);
    if (atEnd) text.scrollTop = text.scrollHeight;
  }

  async function begin() {
    abort = new AbortController();
    const mine = abort;
    text.textContent = "";
    setText(state, "Following.");
    try {
      await stream(`workspaces/${id}/logs?follow=true`, mine.signal, add);
      setText(state, "Ended.");
    } catch (error) {
      if (error.name !== "AbortError") setText(state, `Output cannot be followed: ${error.message}`);
    } finally {
      if (abort === mine) abort = null;
    }
  }

  function stop() {
    abort?.abort();
    abort = null;
  }

  let phase = null;
  return {
    node: el("div", {}, state, text),
    stop,
    /** Follows every new run of the instance; the last output stays visible. */
    follow(workspace) {
      const now = workspace.phase === "RUNNING" || workspace.operation === "STARTING";
      if (now && phase !== "running") {
        stop();
        begin();
      } else if (!now && phase === null) {
        begin();
      }
      phase = now ? "running" : "resting";
    },
  };
}
