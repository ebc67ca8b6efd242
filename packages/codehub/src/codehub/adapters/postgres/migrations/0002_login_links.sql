-- One-time sign-in links (`codehub ws open`), by the hash of their secret. Design: docs/adr/0251.
CREATE TABLE login_links (
    secret_hash  bytea PRIMARY KEY,
    user_id      text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    -- The API token that created the link. The link is deleted with it.
    token_id     text REFERENCES api_tokens (id) ON DELETE CASCADE,
    -- The workspace to open afterwards. NULL: the dashboard.
    workspace_id text REFERENCES workspaces (id) ON DELETE CASCADE,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX login_links_by_expiry ON login_links (expires_at);

-- The token that created the session. The session has the token's rights and ends with it. Older processes leave it NULL.
ALTER TABLE sessions ADD COLUMN token_id text REFERENCES api_tokens (id) ON DELETE CASCADE;
CREATE INDEX sessions_by_token ON sessions (token_id) WHERE token_id IS NOT NULL;
CREATE INDEX login_links_by_token ON login_links (token_id) WHERE token_id IS NOT NULL;
