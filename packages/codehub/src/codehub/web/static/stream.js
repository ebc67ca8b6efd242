// The live connection: server-sent events with automatic reconnection, and a line that shows an interruption.

import {sessionEnded, stream, whoami} from "./api.js";
import {setText} from "./dom.js";
import * as store from "./store.js";

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 15_000;
// The server sends a heartbeat every 30 s. A connection that is silent for longer is dead, even if the browser does not
// notice.
const SILENCE_MS = 75_000;

let source = null;
let retryMs = FIRST_RETRY_MS;
let retryTimer = 0;
let silenceTimer = 0;
let wanted = false;

export function connect() {
  wanted = true;
  if (source) return;
  clearTimeout(retryTimer);
  const controller = new AbortController();
  source = controller;
  heard();
  listen(controller);
}

const HANDLERS = {
  snapshot: (data) => {
    online();
    store.replaceAll(data.items);
  },
  workspace_updated: (data) => store.put(data),
  workspace_deleted: (data) => store.drop(data.id),
  heartbeat: () => {},
};

/** Uses fetch, because an EventSource cannot send the session's key. */
async function listen(controller) {
  let rest = "";
  try {
    await stream("events", controller.signal, (text) => {
      if (source !== controller) return;
      heard();
      const frames = (rest + text).split("\n\n");
      rest = frames.pop();
      frames.forEach(dispatch);
    });
  } catch {
    // `broken` determines what to do about any error.
  }
  if (source === controller) await broken();
}

function dispatch(frame) {
  const fields = {event: "message", data: ""};
  for (const line of frame.split("\n")) {
    const at = line.indexOf(":");
    if (at > 0) fields[line.slice(0, at)] = line.slice(at + 1).replace(/^ /, "");
  }
  HANDLERS[fields.event]?.(JSON.parse(fields.data || "{}"));
}

export function disconnect() {
  wanted = false;
  close();
  clearTimeout(retryTimer);
  document.getElementById("offline").hidden = true;
  document.documentElement.dataset.live = "off";
}

function close() {
  clearTimeout(silenceTimer);
  source?.abort();
  source = null;
}

function heard() {
  clearTimeout(silenceTimer);
  silenceTimer = setTimeout(broken, SILENCE_MS);
}

function online() {
  retryMs = FIRST_RETRY_MS;
  document.getElementById("offline").hidden = true;
  document.documentElement.dataset.live = "on";
  heard();
}

/** Reconnects. The browser's own retry does not cover error statuses and does not use our backoff. */
async function broken() {
  close();
  if (!wanted) return;
  document.documentElement.dataset.live = "off";
  try {
    // A stream also ends with its session; only a request can tell.
    if ((await whoami()) === null) {
      sessionEnded();
      return;
    }
  } catch {
    sayOffline();
  }
  if (!wanted || source) return;
  clearTimeout(retryTimer);
  retryTimer = setTimeout(connect, retryMs * (0.75 + Math.random() / 2));
  retryMs = Math.min(retryMs * 2, LONGEST_RETRY_MS);
}

function sayOffline() {
  const line = document.getElementById("offline");
  setText(line, "CodeHub does not answer. This page may be out of date; it reconnects automatically.");
  line.hidden = false;
}

// After sleep or a network outage, reconnect without waiting for the timer.
addEventListener("online", () => {
  if (wanted && !source) connect();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && wanted && !source) connect();
});
