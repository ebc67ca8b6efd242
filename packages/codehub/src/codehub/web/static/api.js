// The only module that sends HTTP requests. Other modules call these functions and catch ApiError.

import {sessionHeaders} from "./session_key.js";

export class ApiError extends Error {
  constructor(status, code, message, retryAfter = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

const PREFIX = "/api/v1/";
const listeners = new Set();

/** Called if a request that needs a session finds that it has ended. */
export const onSessionEnd = (listener) => listeners.add(listener);
export const sessionEnded = () => listeners.forEach((listener) => listener());

async function errorOf(response) {
  const retryAfter = Number(response.headers.get("retry-after")) || null;
  try {
    const {error} = await response.json();
    return new ApiError(response.status, error.code, error.message, retryAfter);
  } catch {
    return new ApiError(response.status, "INTERNAL_ERROR", `The server answered ${response.status}.`, retryAfter);
  }
}

/**
 * The URL of a path below the API. Ids and file names in it may come from a workspace, and a browser would follow its dot
 * segments to another route: deleting a file could delete another workspace.
 */
export function apiUrl(path) {
  const [route] = path.split(/[?#]/, 1);
  // As a browser reads it: a backslash is a slash, and some control characters are left out.
  if (/[\\\x00-\x20]/.test(route) || route.split("/").some((part) => /^(\.|%2e){1,2}$/i.test(part))) {
    throw new ApiError(0, "INVALID_ARGUMENT", "This name leads out of the workspace. Nothing was changed.");
  }
  return PREFIX + path;
}

async function send(method, path, body) {
  const url = apiUrl(path);
  let response;
  try {
    response = await fetch(url, {
      method,
      credentials: "same-origin",
      cache: "no-store",
      headers: {...sessionHeaders(), ...(body === undefined ? {} : {"content-type": "application/json"})},
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new ApiError(0, "OFFLINE", "CodeHub does not answer. Nothing was changed; try again when it is back.");
  }
  return response;
}

export async function request(method, path, body) {
  const response = await send(method, path, body);
  if (!response.ok) {
    const error = await errorOf(response);
    if (response.status === 401 && path !== "login") sessionEnded();
    throw error;
  }
  return response.status === 204 ? null : response.json();
}

export const get = (path) => request("GET", path);
export const post = (path, body) => request("POST", path, body);
export const put = (path, body) => request("PUT", path, body);
export const patch = (path, body) => request("PATCH", path, body);
export const remove = (path) => request("DELETE", path);

/** A text response, such as the output of a process. */
export async function text(path) {
  const response = await send("GET", path);
  if (!response.ok) throw await errorOf(response);
  return response.text();
}

/** The signed-in user, or null if there is none (which is not an error). */
export async function whoami() {
  const response = await send("GET", "whoami");
  if (!response.ok) throw await errorOf(response);
  return (await response.json()).user;
}

/** Reads a text stream in chunks until it ends or `signal` aborts it. */
export async function stream(path, signal, onText) {
  const response = await fetch(apiUrl(path), {
    credentials: "same-origin",
    cache: "no-store",
    headers: sessionHeaders(),
    signal,
  });
  if (!response.ok) throw await errorOf(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    onText(value);
  }
}

/** Outside the API prefix: the coordinator's health, with its errors if the user is an admin. */
export async function coordinatorHealth() {
  const response = await fetch("/health/coordinator", {credentials: "same-origin", cache: "no-store", headers: sessionHeaders()});
  if (!response.ok && response.status !== 503) throw await errorOf(response);
  return response.json();
}
