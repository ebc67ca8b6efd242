// After a one-time sign-in link: keep the session's key, then go where the link leads.

import {keepSessionKey} from "./session_key.js";

const content = (name) => document.querySelector(`meta[name="${name}"]`).content;

keepSessionKey(content("codehub-session-key"));
location.replace(content("codehub-next"));
