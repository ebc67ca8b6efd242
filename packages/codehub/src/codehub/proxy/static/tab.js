// In every page of an IDE, before the IDE's own scripts: the workspace's name in the tab's title, an overlay while the
// workspace sleeps, and browser storage of its own where workspaces share an origin. Served and inserted by the proxy.

(() => {
  const {prefix, reload} = document.currentScript.dataset;
  const own = `${prefix}/_codehub/`;
  const POLL_MS = 1500;
  let name = "";
  let asleep = false; // seen asleep: the IDE's connections are gone for good
  let lost = false; // a connection ended, and what is typed may reach nobody
  let typed = "";
  let timer = 0;
  let overlay = null;

  // Where workspaces share an origin, they would share databases: VS Code's Recent listed the folders of other workspaces.
  for (const method of ["open", "deleteDatabase"]) {
    const original = IDBFactory.prototype[method];
    IDBFactory.prototype[method] = function (database, ...rest) {
      return original.call(this, `${database}@${prefix}`, ...rest);
    };
  }

  // ── the title ──────────────────────────────────────────────────────────────────────────────────────────────────

  function showName() {
    const start = `${name} ·`; // a title that ends here has lost its last blank
    if (name && !document.title.startsWith(start)) document.title = `${start} ${document.title}`;
  }

  new MutationObserver(showName).observe(document.head, {childList: true, subtree: true, characterData: true});

  // ── whether it sleeps ──────────────────────────────────────────────────────────────────────────────────────────

  async function ask(path, options) {
    const answer = await fetch(own + path, {cache: "no-store", credentials: "same-origin", ...options});
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  async function poll() {
    clearTimeout(timer);
    try {
      show(await ask("status"));
    } catch {
      // Neither asleep nor awake is known: the proxy or the network is away, and the IDE tells that itself.
      if (overlay) timer = setTimeout(poll, POLL_MS);
    }
  }

  function show(status) {
    if (status.name !== name) {
      name = status.name;
      showName();
    }
    if (status.go) {
      if (asleep) wakened();
      lost = false;
      typed = "";
      return;
    }
    // A restart of the IDE alone is not sleep: it answers again in a moment.
    if (status.phase !== "RUNNING" || status.desired_state !== "RUNNING") {
      asleep = true;
      overlay ??= makeOverlay();
      overlay.update(status);
    }
    timer = setTimeout(poll, POLL_MS);
  }

  function wakened() {
    asleep = false;
    const kept = overlay ? overlay.text() : typed;
    overlay?.close();
    overlay = null;
    if (reload) {
      // The IDE's server is another one now and does not know this page.
      if (kept) sessionStorage.setItem(own, kept);
      location.reload();
    } else if (kept.trim()) {
      showKept(kept);
    }
  }

  // A socket that ends is the first sign. The IDEs open theirs after this script ran.
  const Socket = window.WebSocket;
  window.WebSocket = class extends Socket {
    /** @param {ConstructorParameters<typeof WebSocket>} given */
    constructor(...given) {
      super(...given);
      this.addEventListener("close", () => {
        if (new URL(this.url).host !== location.host) return;
        lost = true;
        clearTimeout(timer);
        timer = setTimeout(poll, 200);
      });
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) poll();
  });

  // What is typed between the end of the connection and the overlay.
  window.addEventListener(
    "keydown",
    (event) => {
      if (!lost || overlay || event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key.length === 1) typed += event.key;
      else if (event.key === "Enter") typed += "\n";
      else if (event.key === "Backspace") typed = typed.slice(0, -1);
    },
    true,
  );

  // ── what is shown ──────────────────────────────────────────────────────────────────────────────────────────────

  const STYLE = `
    :host { all: initial; }
    .back { position: fixed; inset: 0; z-index: 2147483647; display: grid; place-items: center; background: #14181fcc; }
    .corner { position: fixed; right: 1rem; bottom: 1rem; z-index: 2147483647; }
    section { font: 15px/1.5 system-ui, sans-serif; width: 26rem; max-width: 90vw; box-sizing: border-box; padding: 1.25rem;
      border-radius: .5rem; background: #fff; color: #1c2430; box-shadow: 0 .5rem 2rem #0006; }
    h1 { font-size: 1.15rem; margin: 0 0 .4rem; }
    p { margin: .4rem 0; }
    label { display: block; margin-top: .6rem; }
    textarea { width: 100%; box-sizing: border-box; min-height: 5rem; font: 13px/1.4 ui-monospace, monospace; }
    button { font: inherit; padding: .4rem 1rem; border: 0; border-radius: .4rem; background: #1f5fbf; color: #fff; cursor: pointer; }
    button.plain { background: #e4e9f0; color: #1c2430; margin-left: .5rem; }
    button:disabled { opacity: .6; cursor: default; }
    a { color: #1f5fbf; margin-left: .8rem; }
    button:focus-visible, a:focus-visible { outline: 2px solid #f59f00; outline-offset: 2px; }
    @media (prefers-color-scheme: dark) { section { background: #1d232d; color: #e6eaf0; } a { color: #7fb0ff; } }`;

  function element(tag, properties, ...children) {
    const made = Object.assign(document.createElement(tag), properties);
    made.append(...children);
    return made;
  }

  function shadowed(...children) {
    const host = document.createElement("div");
    const root = host.attachShadow({mode: "open"});
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(STYLE);
    root.adoptedStyleSheets = [sheet];
    root.append(...children);
    // Keys pressed here are not the IDE's shortcuts.
    for (const kind of ["keydown", "keypress", "keyup"]) host.addEventListener(kind, (event) => event.stopPropagation());
    document.documentElement.append(host);
    return host;
  }

  function makeOverlay() {
    const title = element("h1", {id: "title"});
    const text = element("p");
    const step = element("p");
    step.setAttribute("role", "status");
    const notes = element("textarea", {id: "notes", value: typed, spellcheck: false});
    const label = element("label", {htmlFor: "notes"}, "What you type here is kept and shown again when it is awake:");
    const wake = element("button", {type: "button"}, "Wake up");
    const link = element("a", {}, "My workspaces");
    const section = element("section", {}, title, text, step, element("div", {}, wake, link), label, notes);
    section.setAttribute("role", "dialog");
    section.setAttribute("aria-modal", "true");
    section.setAttribute("aria-labelledby", "title");
    const host = shadowed(element("div", {className: "back"}, section));
    let refused = false; // by the limit, until it is tried again
    wake.addEventListener("click", async () => {
      clearTimeout(timer);
      wake.disabled = true;
      refused = false;
      try {
        show(await ask("wake", {method: "POST"}));
      } catch {
        wake.disabled = false;
        step.textContent = "That did not work. Try again in a moment.";
        timer = setTimeout(poll, POLL_MS);
      }
    });
    // The IDE is still there to be seen, but can neither be used nor take the focus back.
    document.body.inert = true;
    notes.focus();

    function close() {
      host.remove();
      document.body.inert = false;
    }

    function update(status) {
      const words = {
        limit: ["Too many workspaces are running", "Stop one of them in My workspaces, then wake this one up."],
        archived: [`${name} is archived`, "Restore it in My workspaces. Your saved files are in the archive."],
        pending: [`${name} is not started`, "Start it in My workspaces."],
        error: [`${name} needs attention`, "My workspaces says what happened."],
      };
      const wakes = status.desired_state === "RUNNING" && status.page === "waking";
      refused = !wakes && (refused || status.page === "limit");
      const sleep = [`${name} is asleep`, "Your saved files are safe. What ran in it has ended."];
      const [heading, body] = wakes
        ? [`${name} is waking up`, "This page continues by itself."]
        : (words[refused ? "limit" : status.page] ?? sleep);
      title.textContent = heading;
      text.textContent = body;
      link.href = status.dashboard;
      wake.hidden = !["waking", "limit"].includes(status.page);
      wake.disabled = wakes;
      step.textContent = wakes ? (status.step ?? "") : "";
    }

    return {update, text: () => notes.value, close};
  }

  function showKept(text) {
    const notes = element("textarea", {id: "kept", value: text, readOnly: true});
    const copy = element("button", {type: "button"}, "Copy");
    const dismiss = element("button", {type: "button", className: "plain"}, "Dismiss");
    const label = element("label", {htmlFor: "kept"}, "You typed this while the workspace was asleep:");
    const section = element("section", {}, label, notes, element("p", {}, copy, dismiss));
    section.setAttribute("role", "region");
    section.setAttribute("aria-label", "Typed while asleep");
    const host = shadowed(element("div", {className: "corner"}, section));
    copy.addEventListener("click", () => {
      notes.select();
      document.execCommand("copy"); // works on plain HTTP too
      copy.textContent = "Copied";
    });
    dismiss.addEventListener("click", () => host.remove());
  }

  const kept = sessionStorage.getItem(own);
  if (kept !== null) {
    sessionStorage.removeItem(own);
    if (kept.trim()) showKept(kept);
  }
  poll();
})();
