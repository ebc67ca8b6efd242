-- From a repository to a running workspace. Design: docs/adr/0460.

-- The repository to clone: {"url", "ref", "path"}; fixed at creation.
ALTER TABLE workspaces ADD COLUMN repo jsonb;
-- The state of the setup as `workspaced` last reported it. Written by the coordinator's setup links.
ALTER TABLE workspaces ADD COLUMN setup jsonb;
-- How often the owner has requested to retry the failed steps.
ALTER TABLE workspaces ADD COLUMN setup_retry integer NOT NULL DEFAULT 0;
-- The linked start and the user whose secrets it received. After a transfer, it gets no other user's secrets.
ALTER TABLE workspaces ADD COLUMN setup_instance text;
ALTER TABLE workspaces ADD COLUMN setup_owner text;

-- Counts the changes of a user's credentials, secrets and dotfiles, so that linked workspaces receive them.
ALTER TABLE users ADD COLUMN setup_revision bigint NOT NULL DEFAULT 0;
ALTER TABLE users ADD COLUMN dotfiles_url text NOT NULL DEFAULT '';
ALTER TABLE users ADD COLUMN dotfiles_ref text NOT NULL DEFAULT '';

-- Sealed columns hold the key's id, a nonce and the ciphertext (adapters/secret_box.py).
CREATE TABLE git_credentials (
    id         text PRIMARY KEY,
    user_id    text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    scheme     text NOT NULL CHECK (scheme IN ('https', 'http')),
    host       text NOT NULL,
    username   text NOT NULL,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL,
    UNIQUE (user_id, scheme, host)
);

-- The key that signs for a user's git over SSH.
CREATE TABLE git_keys (
    user_id    text PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    public_key text NOT NULL,
    sealed     bytea NOT NULL,
    created_at timestamptz NOT NULL
);

CREATE TABLE user_secrets (
    user_id    text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name       text NOT NULL,
    kind       text NOT NULL CHECK (kind IN ('env', 'file')),
    sealed     bytea NOT NULL,
    bytes      integer NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (user_id, name)
);

CREATE TRIGGER ws_sse_setup AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN ((OLD.setup, OLD.setup_retry) IS DISTINCT FROM (NEW.setup, NEW.setup_retry))
    EXECUTE FUNCTION notify_workspace_shown();
