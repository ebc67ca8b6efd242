-- Tables of `workspaced` and of the doors that use it. Design: docs/adr/0400.

-- Limits a token to one workspace. Older processes ignore the limit: upgrade them before creating such a token.
ALTER TABLE api_tokens ADD COLUMN workspace_id text REFERENCES workspaces (id) ON DELETE CASCADE;

-- Until when the owner keeps the workspace awake; the program that last kept it awake, and since when (written by the TTL
-- runner).
ALTER TABLE workspaces ADD COLUMN keep_awake_until timestamptz;
ALTER TABLE workspaces ADD COLUMN busy_reason text;
ALTER TABLE workspaces ADD COLUMN busy_since timestamptz;
ALTER TABLE workspaces ADD COLUMN busy_at timestamptz;

-- Users' SSH public keys.
CREATE TABLE ssh_keys (
    id          text PRIMARY KEY,
    user_id     text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name        text NOT NULL,
    public_key  text NOT NULL,
    fingerprint text NOT NULL,
    created_at  timestamptz NOT NULL,
    UNIQUE (user_id, fingerprint)
);

-- Each workspace's SSH host key. In a table of its own, so that no query that lists workspaces reads it.
CREATE TABLE workspace_host_keys (
    workspace_id text PRIMARY KEY REFERENCES workspaces (id) ON DELETE CASCADE,
    private_key  text NOT NULL,
    public_key   text NOT NULL,
    created_at   timestamptz NOT NULL
);

-- Who may open a port besides the owner. A port without a row belongs to the owner alone.
CREATE TABLE workspace_ports (
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    port         integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    share        text NOT NULL CHECK (share IN ('owner', 'users', 'link')),
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, port)
);

-- Links that open a port for anyone until they expire or are revoked, by the hash of their secret.
CREATE TABLE port_links (
    id           text PRIMARY KEY,
    secret_hash  bytea NOT NULL UNIQUE,
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    port         integer NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX port_links_by_workspace ON port_links (workspace_id, port);

-- A change of a column that users see is an event.
CREATE TRIGGER ws_sse_awake AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (
        (OLD.keep_awake_until, OLD.busy_reason, OLD.busy_since)
        IS DISTINCT FROM (NEW.keep_awake_until, NEW.busy_reason, NEW.busy_since))
    EXECUTE FUNCTION notify_workspace_shown();
