// Files of a workspace's home: browse, upload by drag and drop, download a file or a folder, delete.

import {get, remove} from "../../api.js";
import {ask} from "../../dialogs.js";
import {el, setHidden, setText} from "../../dom.js";
import {failed, said} from "../../toasts.js";
import {download, droppedFiles, encodedPath, filePath, upload} from "../../transfers.js";
import {bytes, moment} from "../../words.js";

// Paths are encoded here, as in URLs: a name that is no UTF-8 has no other form.
const join = (folder, name) => (folder ? `${folder}/${name}` : name);
const encodedName = (entry) => entry.encoded_path ?? encodedPath(entry.path);
const readable = (encoded) => {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
};
const byName = new Intl.Collator();
const ROWS = 500; // a table of ten thousand rows takes a browser many seconds

export function filesPage({id, query}) {
  let folder = query.get("path") ?? "";
  const crumbs = el("nav", {class: "crumbs", "aria-label": "Folder"});
  const chooser = el("input", {type: "file", multiple: true, hidden: true, onchange: () => sendAll([...chooser.files].map((file) => ({path: file.name, file})))});
  const uploadButton = el("button", {type: "button", class: "primary", onclick: () => chooser.click()}, "Upload files");
  const folderButton = el("button", {type: "button", onclick: () => fetchOne(folder, `${readable(folder.split("/").pop()) || "home"}.tar`)}, "Download folder");
  const body = el("tbody");
  let hidden = []; // listed, but not in the table yet
  let next = ""; // where the list goes on
  const more = el("button", {type: "button", hidden: true, onclick: showMore}, "Show more");
  const transfers = el("ul", {class: "transfers", "aria-label": "Transfers"});
  const area = el(
    "section",
    {class: "card drop"},
    el("div", {class: "row head"}, crumbs, el("div", {class: "row"}, uploadButton, folderButton, chooser)),
    transfers,
    el(
      "div",
      {class: "scroll", tabindex: "0", role: "region", "aria-label": "Files"},
      el("table", {class: "files"}, el("thead", {}, el("tr", {}, ["Name", "Size", "Modified", "Actions"].map((text) => el("th", {scope: "col"}, text)))), body),
    ),
    more,
    el("p", {class: "hint"}, "Drop files or folders here to upload them. For many gigabytes, use ", el("code", {}, "codehub ws cp"), "."),
  );

  for (const kind of ["dragenter", "dragover"]) {
    area.addEventListener(kind, (event) => {
      event.preventDefault();
      area.classList.add("over");
    });
  }
  area.addEventListener("dragleave", (event) => !area.contains(event.relatedTarget) && area.classList.remove("over"));
  area.addEventListener("drop", async (event) => {
    event.preventDefault();
    area.classList.remove("over");
    try {
      await sendAll(await droppedFiles(event.dataTransfer));
    } catch (error) {
      failed(error, "Upload");
    }
  });

  /** One transfer's line: name, bar, progress, and Cancel. Returns its error, or null. */
  async function follow(label, run) {
    const abort = new AbortController();
    const bar = el("progress", {max: 100, "aria-label": `Progress of ${label}`});
    const far = el("span", {class: "quiet"});
    const line = el("li", {}, el("span", {class: "clip"}, label), bar, far, el("button", {type: "button", "aria-label": `Cancel ${label}`, onclick: () => abort.abort()}, "Cancel"));
    transfers.append(line);
    const onProgress = (done, total) => {
      if (total === null) bar.removeAttribute("value");
      else bar.value = total ? (100 * done) / total : 100;
      setText(far, total === null ? bytes(done) : `${bytes(done)} of ${bytes(total)}`);
    };
    try {
      await run({onProgress, signal: abort.signal});
      return null;
    } catch (error) {
      if (error.name !== "AbortError") failed(error, error.message.includes(label) ? "" : label);
      return error;
    } finally {
      line.remove();
    }
  }

  async function sendAll(files) {
    const into = folder;
    const sent = [];
    for (const {path, file} of files) {
      const error = await follow(path, (how) => upload(id, join(into, encodedPath(path)), file, how));
      if (!error) sent.push(path);
      else if (error.code === "INSUFFICIENT_STORAGE") break;
    }
    chooser.value = "";
    if (sent.length) said(sent.length === 1 ? `${sent[0]} was uploaded.` : `${sent.length} files were uploaded.`);
    await show(folder);
  }

  const fetchOne = (path, name) => follow(name, (how) => download(id, path, name, how));

  async function drop(entry) {
    const path = join(folder, encodedName(entry));
    const isFolder = entry.type === "directory";
    if (!(await ask({title: `Delete ${entry.path}?`, text: isFolder ? "The folder and everything in it are deleted." : "The file is deleted.", yes: "Delete", danger: true}))) return;
    try {
      await remove(`${filePath(id, path)}${isFolder ? "?recursive=1" : ""}`);
    } catch (error) {
      failed(error, `Delete ${entry.path}`);
    }
    await show(folder);
  }

  function row(entry) {
    const isFolder = entry.type === "directory";
    const path = join(folder, encodedName(entry));
    const name = isFolder ? el("a", {href: `#/workspaces/${id}/files?path=${encodeURIComponent(path)}`, class: "folder"}, `${entry.path}/`) : entry.path;
    const saved = isFolder ? `${entry.path}.tar` : entry.path;
    const canFetch = isFolder || entry.type === "file";
    return el(
      "tr",
      {},
      el("td", {"data-label": "Name"}, name, entry.target ? el("span", {class: "quiet"}, ` → ${entry.target}`) : null),
      el("td", {"data-label": "Size"}, isFolder ? "–" : bytes(entry.size)),
      el("td", {"data-label": "Modified"}, moment(entry.modified_at, Date.now())),
      el(
        "td",
        {"data-label": "Actions"},
        el(
          "div",
          {class: "row"},
          canFetch ? el("button", {type: "button", "aria-label": `Download ${saved}`, onclick: () => fetchOne(path, saved)}, "Download") : null,
          el("button", {type: "button", class: "danger", "aria-label": `Delete ${entry.path}`, onclick: () => drop(entry)}, "Delete"),
        ),
      ),
    );
  }

  function showCrumbs() {
    const parts = folder ? folder.split("/") : [];
    const link = (text, path, last) => el("a", {href: `#/workspaces/${id}/files${path ? `?path=${encodeURIComponent(path)}` : ""}`, "aria-current": last ? "page" : null}, readable(text));
    crumbs.replaceChildren(link("Home", "", !parts.length), ...parts.flatMap((part, index) => [el("span", {class: "quiet"}, " / "), link(part, parts.slice(0, index + 1).join("/"), index === parts.length - 1)]));
  }

  async function show(path) {
    folder = path;
    showCrumbs();
    hidden = [];
    next = "";
    try {
      await list();
      body.replaceChildren(...(hidden.length ? [] : [el("tr", {}, el("td", {colspan: 4, class: "quiet"}, "This folder is empty."))]));
      showRows();
    } catch (error) {
      body.replaceChildren(el("tr", {}, el("td", {colspan: 4}, error.message)));
      setHidden(more, true);
    }
  }

  async function list() {
    const found = await get(`${filePath(id, folder)}?list=1&wake=0${next ? `&after=${encodeURIComponent(next)}` : ""}`);
    next = found.next ?? "";
    hidden = found.items.sort((a, b) => Number(b.type === "directory") - Number(a.type === "directory") || byName.compare(a.path, b.path));
  }

  function showRows() {
    body.append(...hidden.splice(0, ROWS).map(row));
    setHidden(more, !hidden.length && !next);
  }

  async function showMore() {
    const shown = body.children.length;
    try {
      if (!hidden.length) await list();
      showRows();
      // The keyboard goes on where the new rows begin.
      body.children[shown]?.querySelector("a, button")?.focus();
    } catch (error) {
      failed(error, "Show more");
    }
  }

  return {node: area, begin: () => show(folder)};
}
