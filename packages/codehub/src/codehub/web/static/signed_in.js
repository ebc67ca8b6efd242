// After a one-time sign-in link: stores the session's key, then opens the link's target.

import {keepSessionKey} from "./session_key.js";

const content = (name) => document.querySelector(`meta[name="${name}"]`).getAttribute("content");

keepSessionKey(content("codehub-session-key"));
location.replace(content("codehub-next"));
