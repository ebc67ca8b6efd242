// The page's state: the signed-in user, the installation's settings, the user's workspaces. Views subscribe to it.

const changed = new Set();
let announced = false;

export const state = {
  user: null,          // {id, username, is_admin}
  about: null,         // profiles, times, limits of this installation
  workspaces: new Map(),
  loaded: false,       // whether the first snapshot has arrived
};

/** Calls `listener` after every change (once per frame for many changes). Returns a function that unsubscribes. */
export function subscribe(listener) {
  changed.add(listener);
  return () => changed.delete(listener);
}

function announce() {
  if (announced) return;
  announced = true;
  // A hidden tab gets no animation frames, so use a timer: the tab must be current when it is shown again.
  setTimeout(() => {
    announced = false;
    for (const listener of [...changed]) listener();
  }, 16);
}

/** Notifies views of a change outside the workspaces. */
export const touch = announce;

export function replaceAll(items) {
  state.workspaces = new Map(items.map((item) => [item.id, item]));
  state.loaded = true;
  announce();
}

/** Stores a newer object. An older one that arrives late (a response that lost a race against the stream) is dropped. */
export function put(workspace) {
  const known = state.workspaces.get(workspace.id);
  if (known && known.updated_at > workspace.updated_at) return;
  state.workspaces.set(workspace.id, workspace);
  announce();
}

/** Like `put`, for a workspace that may belong to another user (viewed by an admin): updates only known workspaces. */
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
