-- The initial schema. Each column of `workspaces` has one writer: INV-3 in docs/invariants.md.

CREATE TABLE users (
    id            text PRIMARY KEY,
    username      text NOT NULL UNIQUE CHECK (length(username) BETWEEN 1 AND 64),
    password_hash text NOT NULL,
    is_admin      boolean NOT NULL DEFAULT false,
    disabled_at   timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE sessions (
    id           text PRIMARY KEY,
    user_id      text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    secret_hash  bytea NOT NULL UNIQUE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz NOT NULL,
    last_seen_at timestamptz NOT NULL DEFAULT now(),
    address      text NOT NULL DEFAULT '',
    user_agent   text NOT NULL DEFAULT ''
);
CREATE INDEX sessions_by_user ON sessions (user_id);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);

CREATE TABLE api_tokens (
    id           text PRIMARY KEY,
    user_id      text NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name         text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    secret_hash  bytea NOT NULL UNIQUE,
    created_at   timestamptz NOT NULL DEFAULT now(),
    expires_at   timestamptz,
    last_used_at timestamptz
);
CREATE INDEX api_tokens_by_user ON api_tokens (user_id);

CREATE TABLE login_failures (
    username     text NOT NULL,
    address      text NOT NULL,
    failures     integer NOT NULL,
    locked_until timestamptz,
    last_at      timestamptz NOT NULL,
    PRIMARY KEY (username, address)
);

CREATE TABLE workspaces (
    id               text PRIMARY KEY CHECK (id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'),
    owner_user_id    text NOT NULL REFERENCES users (id),
    name             text NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    description      text NOT NULL DEFAULT '',
    memo             text NOT NULL DEFAULT '',
    image_ref        text NOT NULL CHECK (length(image_ref) BETWEEN 1 AND 512),
    instance_backend text NOT NULL CHECK (instance_backend IN ('process', 'local-docker', 'k8s')),
    storage_backend  text NOT NULL CHECK (storage_backend IN ('local-dir', 'docker-volume', 'pvc')),
    home_store_key   text NOT NULL,
    home_ctx         jsonb,
    conditions       jsonb NOT NULL DEFAULT '{}',
    phase            text NOT NULL DEFAULT 'PENDING'
        CHECK (phase IN ('PENDING', 'ARCHIVED', 'STANDBY', 'RUNNING', 'ERROR', 'DELETING', 'DELETED')),
    phase_changed_at timestamptz NOT NULL DEFAULT now(),
    operation        text NOT NULL DEFAULT 'NONE'
        CHECK (operation IN ('NONE', 'PROVISIONING', 'CREATE_EMPTY_ARCHIVE', 'RESTORING', 'STARTING', 'STOPPING',
                             'ARCHIVING', 'DELETING')),
    op_started_at    timestamptz,
    progress         jsonb,
    archive_op_id    text,
    archive_key      text,
    desired_state    text NOT NULL CHECK (desired_state IN ('RUNNING', 'STANDBY', 'ARCHIVED', 'DELETED')),
    observed_at      timestamptz,
    last_access_at   timestamptz,
    error_reason     text,
    error_count      integer NOT NULL DEFAULT 0 CHECK (error_count >= 0),
    retry_at         timestamptz,
    created_at       timestamptz NOT NULL DEFAULT now(),
    updated_at       timestamptz NOT NULL DEFAULT now(),
    deleted_at       timestamptz,
    purged_at        timestamptz,
    -- INV-4: a workspace in ERROR has no operation in progress
    CONSTRAINT error_has_no_operation CHECK (phase <> 'ERROR' OR operation = 'NONE'),
    CONSTRAINT purged_was_deleted CHECK (purged_at IS NULL OR deleted_at IS NOT NULL)
);
CREATE INDEX workspaces_by_owner ON workspaces (owner_user_id, created_at DESC, id) WHERE deleted_at IS NULL;
CREATE INDEX workspaces_by_age ON workspaces (created_at DESC, id) WHERE deleted_at IS NULL;
CREATE INDEX workspaces_that_want_to_run ON workspaces (owner_user_id)
    WHERE desired_state = 'RUNNING' AND deleted_at IS NULL;
CREATE INDEX workspaces_to_put_to_sleep ON workspaces (phase, phase_changed_at)
    WHERE operation = 'NONE' AND deleted_at IS NULL;
CREATE INDEX workspaces_under_way ON workspaces (id) WHERE operation <> 'NONE' AND deleted_at IS NULL;
CREATE INDEX workspaces_to_purge ON workspaces (deleted_at) WHERE deleted_at IS NOT NULL AND purged_at IS NULL;

CREATE TABLE workspace_archives (
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    archive_key  text NOT NULL,
    op_id        text NOT NULL,
    committed_at timestamptz NOT NULL,
    bytes        bigint NOT NULL CHECK (bytes >= 0),
    sha256       text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    PRIMARY KEY (workspace_id, op_id)
);
CREATE INDEX workspace_archives_by_age ON workspace_archives (workspace_id, committed_at DESC);

CREATE TABLE archive_orphans (
    archive_key   text PRIMARY KEY,
    workspace_id  text NOT NULL,
    op_id         text NOT NULL,
    first_seen_at timestamptz NOT NULL
);

CREATE TABLE proxy_tickets (
    ticket_hash  bytea PRIMARY KEY,
    nonce_hash   bytea NOT NULL,
    session_id   text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    expires_at   timestamptz NOT NULL
);
CREATE INDEX proxy_tickets_by_expiry ON proxy_tickets (expires_at);

-- The proxy's workspace cookies. Each belongs to the dashboard session that created it and is deleted with it.
CREATE TABLE proxy_sessions (
    secret_hash  bytea PRIMARY KEY,
    session_id   text NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    created_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX proxy_sessions_by_session ON proxy_sessions (session_id);

CREATE TABLE system_locks (
    lock_name   text PRIMARY KEY,
    epoch       bigint NOT NULL DEFAULT 0,
    holder_id   text NOT NULL DEFAULT '',
    acquired_at timestamptz,
    -- {name: {"last_tick_at", "last_error"}}, written periodically by the leader
    components  jsonb NOT NULL DEFAULT '{}'
);
INSERT INTO system_locks (lock_name) VALUES ('coordinator');

-- Facts that outlive processes, one row each: the installation's id, until when activity was observed, …
CREATE TABLE system_facts (
    name  text PRIMARY KEY,
    value jsonb NOT NULL
);

CREATE TABLE workspace_events (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace_id text NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    at           timestamptz NOT NULL DEFAULT now(),
    kind         text NOT NULL,
    message      text NOT NULL,
    actor        text NOT NULL DEFAULT 'codehub',
    detail       jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX workspace_events_by_workspace ON workspace_events (workspace_id, id DESC);

-- Notifications carry ids: a whole row could exceed NOTIFY's limit of 8000 bytes.
CREATE FUNCTION notify_workspace_shown() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('ws_sse', json_build_object('id', NEW.id, 'owner', NEW.owner_user_id)::text);
    RETURN NULL;
END $$;

CREATE FUNCTION notify_workspace_wake() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('ws_wake', json_build_object('id', NEW.id)::text);
    RETURN NULL;
END $$;

CREATE FUNCTION notify_workspace_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('ws_deleted', json_build_object('id', NEW.id, 'owner', NEW.owner_user_id)::text);
    RETURN NULL;
END $$;

CREATE TRIGGER ws_sse_insert AFTER INSERT ON workspaces
    FOR EACH ROW EXECUTE FUNCTION notify_workspace_shown();
CREATE TRIGGER ws_sse_update AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (
        (OLD.name, OLD.description, OLD.memo, OLD.owner_user_id, OLD.image_ref, OLD.conditions, OLD.phase,
         OLD.phase_changed_at, OLD.operation, OLD.progress, OLD.archive_key, OLD.desired_state, OLD.error_reason,
         OLD.error_count, OLD.deleted_at)
        IS DISTINCT FROM
        (NEW.name, NEW.description, NEW.memo, NEW.owner_user_id, NEW.image_ref, NEW.conditions, NEW.phase,
         NEW.phase_changed_at, NEW.operation, NEW.progress, NEW.archive_key, NEW.desired_state, NEW.error_reason,
         NEW.error_count, NEW.deleted_at))
    EXECUTE FUNCTION notify_workspace_shown();

CREATE TRIGGER ws_wake_insert AFTER INSERT ON workspaces
    FOR EACH ROW EXECUTE FUNCTION notify_workspace_wake();
-- desired_state; a recovery (the reset of a recorded error); an undelete
CREATE TRIGGER ws_wake_update AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (
        OLD.desired_state IS DISTINCT FROM NEW.desired_state
        OR (OLD.error_reason IS NOT NULL AND NEW.error_reason IS NULL)
        OR (OLD.deleted_at IS NOT NULL AND NEW.deleted_at IS NULL))
    EXECUTE FUNCTION notify_workspace_wake();

CREATE TRIGGER ws_deleted_update AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (OLD.deleted_at IS NULL AND NEW.deleted_at IS NOT NULL)
    EXECUTE FUNCTION notify_workspace_deleted();
