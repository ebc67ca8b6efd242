// What the page knows: who is signed in, what this installation is like, my workspaces. Views subscribe to it.

const changed = new Set();
let announced = false;

export const state = {
  user: null,          // {id, username, is_admin}
  about: null,         // profiles, times, limits of this installation
  workspaces: new Map(),
  loaded: false,       // whether a first snapshot has come
};

/** Call `listener` after every change (many changes in one frame are one call); returns how to stop. */
export function subscribe(listener) {
  changed.add(listener);
  return () => changed.delete(listener);
}

function announce() {
  if (announced) return;
  announced = true;
  // A hidden tab gets no frames, so a timer: it must be right when it is looked at again.
  setTimeout(() => {
    announced = false;
    for (const listener of [...changed]) listener();
  }, 16);
}

/** Something views depend on changed outside of the workspaces. */
export const touch = announce;

export function replaceAll(items) {
  state.workspaces = new Map(items.map((item) => [item.id, item]));
  state.loaded = true;
  announce();
}

/** Take a newer object; an older one that comes late (an answer that lost a race against the stream) is dropped. */
export function put(workspace) {
  const known = state.workspaces.get(workspace.id);
  if (known && known.updated_at > workspace.updated_at) return;
  state.workspaces.set(workspace.id, workspace);
  announce();
}

/** The same for a workspace that may not be mine (an admin looks at it): only what is known already is updated. */
export function putIfKnown(workspace) {
  if (state.workspaces.has(workspace.id)) put(workspace);
}

export function drop(id) {
  if (state.workspaces.delete(id)) announce();
}

export function forgetEverything() {
  state.user = null;
  state.workspaces = new Map();
  state.loaded = false;
  announce();
}
