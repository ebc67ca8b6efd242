// The second half of the session. Cookies are sent to every port of the host; only the dashboard's origin can read this
// storage.

const NAME = "codehub.session_key";

export const sessionKey = () => localStorage.getItem(NAME) ?? "";
export const keepSessionKey = (key) => localStorage.setItem(NAME, key);
export const forgetSessionKey = () => localStorage.removeItem(NAME);

/** Headers for every request to the API. */
export const sessionHeaders = () => (sessionKey() ? {"x-codehub-session-key": sessionKey()} : {});
