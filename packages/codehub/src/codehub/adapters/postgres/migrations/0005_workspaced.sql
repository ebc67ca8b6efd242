-- What `workspaced` and the doors built on it need. Design: docs/adr/0400.

-- A token that is good for one workspace only. Older processes do not know the limit: upgrade them before minting one.
ALTER TABLE api_tokens ADD COLUMN workspace_id text REFERENCES workspaces (id) ON DELETE CASCADE;

-- Until when the owner keeps it awake; what kept it awake when it was last asked, since when (the TTL Runner's).
ALTER TABLE workspaces ADD COLUMN keep_awake_until timestamptz;
ALTER TABLE workspaces ADD COLUMN busy_reason text;
ALTER TABLE workspaces ADD COLUMN busy_since timestamptz;
ALTER TABLE workspaces ADD COLUMN busy_at timestamptz;

-- People's SSH public keys.
CREATE TABLE ssh_keys (
    id          text PRIMARY KEY,
    user_id     text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name        text NOT NULL,
    public_key  text NOT NULL,
    fingerprint text NOT NULL,
    created_at  timestamptz NOT NULL,
    UNIQUE (user_id, fingerprint)
);

-- Each workspace's own SSH host key: beside the row, not in it, so that no listing reads it.
CREATE TABLE workspace_host_keys (
    workspace_id text PRIMARY KEY REFERENCES workspaces (id) ON DELETE CASCADE,
    private_key  text NOT NULL,
    public_key   text NOT NULL,
    created_at   timestamptz NOT NULL
);

-- Who may open a port besides the owner. A port without a row is the owner's alone.
CREATE TABLE workspace_ports (
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    port         integer NOT NULL CHECK (port BETWEEN 1 AND 65535),
    share        text NOT NULL CHECK (share IN ('owner', 'users', 'link')),
    changed_at   timestamptz NOT NULL,
    PRIMARY KEY (workspace_id, port)
);

-- Addresses that let anybody in who has one, until they expire or are revoked; by the hash of their secret.
CREATE TABLE port_links (
    id           text PRIMARY KEY,
    secret_hash  bytea NOT NULL UNIQUE,
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    port         integer NOT NULL,
    created_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX port_links_by_workspace ON port_links (workspace_id, port);

-- Shown columns: a change of these is an event.
CREATE TRIGGER ws_sse_awake AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (
        (OLD.keep_awake_until, OLD.busy_reason, OLD.busy_since)
        IS DISTINCT FROM (NEW.keep_awake_until, NEW.busy_reason, NEW.busy_since))
    EXECUTE FUNCTION notify_workspace_shown();
