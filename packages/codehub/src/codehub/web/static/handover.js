// The dashboard's side of opening a workspace: proves the session and continues with the one-time ticket.

import {ApiError, post} from "./api.js";

const id = location.pathname.split("/")[2];
const query = new URLSearchParams(location.search);

function say(title, text) {
  document.title = `${title} · CodeHub`;
  document.querySelector("h1").textContent = title;
  document.querySelector("p").textContent = text;
}

try {
  const {url} = await post(`workspaces/${id}/handover`, {nonce: query.get("nonce"), next: query.get("next") ?? ""});
  location.replace(url);
} catch (error) {
  if (!(error instanceof ApiError)) throw error;
  if (error.status === 401) {
    location.replace(`/?next=${encodeURIComponent(location.pathname + location.search)}`);
  } else if (error.status === 404) {
    say("There is no such workspace", "It may have been deleted.");
  } else if (error.status === 403) {
    say("This workspace belongs to someone else", "Only its owner can open it.");
  } else {
    say("The workspace cannot be opened now", error.message);
  }
}
