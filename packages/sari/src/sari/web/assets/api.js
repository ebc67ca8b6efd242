// Sends requests to the daemon. A daemon that is being replaced answers again within seconds, so reads are retried.

const TIMEOUT_MS = 15000;
// Set by the page that signs in. Other origins, such as other ports of this machine, cannot read it.
const PAGE_KEY = "sari-page-key";

export const isSignedIn = () => localStorage.getItem(PAGE_KEY) !== null;

// Without the cookie, the same address shows how to sign in.
export async function signOut() {
  localStorage.removeItem(PAGE_KEY);
  await fetch("signout", { method: "POST", credentials: "same-origin" });
  location.reload();
}

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

const pause = (ms, signal) =>
  new Promise((done, failed) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", () => { clearTimeout(timer); failed(signal.reason); }, { once: true });
  });

async function ask(path, options) {
  const started = Date.now();
  for (let wait = 150; ; wait = Math.min(wait * 2, 2000)) {
    let answer;
    try {
      const headers = { ...options.headers, "X-Sari-Page-Key": localStorage.getItem(PAGE_KEY) ?? "" };
      answer = await fetch(path, { credentials: "same-origin", ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      if (Date.now() - started > TIMEOUT_MS) throw new Failure(0, "sari does not answer. Is its daemon running? Try `sari web`.");
    }
    if (answer && answer.status !== 503) {
      const body = await answer.json();
      if (answer.ok) return body;
      throw new Failure(answer.status, body.error ?? `sari answered ${answer.status}`);
    }
    if (answer && Date.now() - started > TIMEOUT_MS) throw new Failure(503, "sari is busy: try again");
    await pause(wait, options.signal);
  }
}

export function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== "" && value != null));
  return ask(`${path}?${query}`, { signal });
}

export const post = (path, body) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });

// A workspace that was unused for a while is closed: open it and retry once.
export async function getFrom(workspace, path, parameters, signal) {
  try {
    return await get(path, { workspace, ...parameters }, signal);
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 404 || !workspace) throw error;
    await post("open", { workspace });
    return get(path, { workspace, ...parameters }, signal);
  }
}
