// The live connection: server-sent events that come back by themselves, and a line that says while they are away.

import {sessionEnded, whoami} from "./api.js";
import {setText} from "./dom.js";
import * as store from "./store.js";

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 15_000;
// The server sends a heartbeat every 30 s. A connection that is silent for longer is dead, whatever the browser thinks.
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
  source = new EventSource("api/v1/events");
  heard();
  source.addEventListener("snapshot", (event) => {
    online();
    store.replaceAll(JSON.parse(event.data).items);
  });
  source.addEventListener("workspace_updated", (event) => {
    heard();
    store.put(JSON.parse(event.data));
  });
  source.addEventListener("workspace_deleted", (event) => {
    heard();
    store.drop(JSON.parse(event.data).id);
  });
  source.addEventListener("heartbeat", heard);
  source.addEventListener("error", broken);
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
  source?.close();
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

/** The browser would retry by itself, but not after an error status, and not with our backoff: do it here. */
async function broken() {
  close();
  if (!wanted) return;
  document.documentElement.dataset.live = "off";
  try {
    // A stream also ends because the session did; only asking tells.
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
  setText(line, "CodeHub does not answer. This page may be out of date; it reconnects by itself.");
  line.hidden = false;
}

// Coming back from sleep or from no network at all: don't wait for the timer.
addEventListener("online", () => {
  if (wanted && !source) connect();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden && wanted && !source) connect();
});
