// File uploads and downloads with progress and cancellation.

import {ApiError, apiUrl, sessionEnded} from "./api.js";
import {sessionHeaders} from "./session_key.js";

/** A path for a URL. Names may contain any character; those that are no UTF-8 have this form only. */
export const encodedPath = (path) => path.split("/").map(encodeURIComponent).join("/");

/** An encoded path in a workspace's home, as a path below the API. */
export function filePath(id, encoded) {
  // It may come from a link: what follows one of these would be parameters, such as of a request that deletes a folder.
  if (/[?#]/.test(encoded)) throw new ApiError(0, "INVALID_ARGUMENT", "This is not the path of a file.");
  return `workspaces/${id}/files/${encoded}`;
}

function problem(status, text) {
  if (status === 401) sessionEnded();
  try {
    const {error} = JSON.parse(text);
    return new ApiError(status, error.code, error.message);
  } catch {
    return new ApiError(status, "INTERNAL_ERROR", status ? `The server answered ${status}.` : "The connection was lost. Nothing was changed.");
  }
}

/** Writes a file. `onProgress(done, total)`; `signal` cancels it, which leaves the old file, or none. */
export function upload(id, encoded, file, {onProgress, signal}) {
  return new Promise((resolve, reject) => {
    // fetch does not report upload progress.
    const request = new XMLHttpRequest();
    request.open("PUT", apiUrl(filePath(id, encoded)));
    for (const [name, value] of Object.entries(sessionHeaders())) request.setRequestHeader(name, value);
    request.setRequestHeader("content-type", "application/octet-stream");
    request.upload.onprogress = (event) => onProgress(event.loaded, file.size);
    request.onload = () => (request.status < 300 ? resolve() : reject(problem(request.status, request.responseText)));
    request.onerror = () => reject(problem(0, ""));
    request.onabort = () => reject(new DOMException("cancelled", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(file);
  });
}

/** Downloads a file, or a folder as tar, and saves it through the browser. `total` is null for a folder. */
export async function download(id, encoded, name, {onProgress, signal}) {
  const response = await fetch(apiUrl(filePath(id, encoded)), {credentials: "same-origin", cache: "no-store", headers: sessionHeaders(), signal});
  if (!response.ok) throw problem(response.status, await response.text());
  const length = response.headers.get("content-length");
  const total = length === null ? null : Number(length);
  const parts = [];
  let done = 0;
  const reader = response.body.getReader();
  for (;;) {
    const {done: over, value} = await reader.read();
    if (over) break;
    parts.push(value);
    done += value.length;
    onProgress(done, total);
  }
  save(new Blob(parts), name);
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** The dropped files, including those in folders: [{path, file}], with paths relative to the dropped item. */
export async function droppedFiles(transfer) {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.length) return [...transfer.files].map((file) => ({path: file.name, file}));
  const found = [];
  for (const entry of entries) await walk(entry, "", found);
  return found;
}

async function walk(entry, prefix, found) {
  if (entry.isFile) {
    found.push({path: prefix + entry.name, file: await new Promise((resolve, reject) => entry.file(resolve, reject))});
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const batch = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (!batch.length) return;
    for (const below of batch) await walk(below, `${prefix}${entry.name}/`, found);
  }
}
