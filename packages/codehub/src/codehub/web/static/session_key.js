// The second half of the session. Cookies go to every port of the host; this storage belongs to the dashboard's origin alone.

const NAME = "codehub.session_key";

export const sessionKey = () => localStorage.getItem(NAME) ?? "";
export const keepSessionKey = (key) => localStorage.setItem(NAME, key);
export const forgetSessionKey = () => localStorage.removeItem(NAME);

/** What goes with every request of ours. */
export const sessionHeaders = () => (sessionKey() ? {"x-codehub-session-key": sessionKey()} : {});
