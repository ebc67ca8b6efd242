-- The audit trail: security events, with user and address. Rows are only added. They name users, tokens and workspaces by
-- value, because they outlive them.
CREATE TABLE audit_events (
    id           bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at           timestamptz NOT NULL,
    event        text NOT NULL,
    actor        text NOT NULL,
    actor_id     text,
    token_id     text,
    address      text NOT NULL,
    target       text NOT NULL,
    workspace_id text,
    detail       jsonb NOT NULL
);
CREATE INDEX audit_events_at ON audit_events (at);
CREATE INDEX audit_events_actor ON audit_events (actor, id);
CREATE INDEX audit_events_workspace ON audit_events (workspace_id, id) WHERE workspace_id IS NOT NULL;

-- Rows may be deleted once they are older than the retention and at least a day old. No row is ever changed.
CREATE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    retention_s float8 := nullif(current_setting('codehub.audit_retention_s', true), '')::float8;
BEGIN
    IF TG_OP = 'DELETE' AND retention_s >= 86400 AND OLD.at < now() - make_interval(secs => retention_s) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit_events is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER audit_events_append_only BEFORE UPDATE OR DELETE ON audit_events
    FOR EACH ROW EXECUTE FUNCTION refuse_audit_change();
CREATE TRIGGER audit_events_keep BEFORE TRUNCATE ON audit_events
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_audit_change();
ALTER TABLE audit_events ENABLE ALWAYS TRIGGER audit_events_append_only;
ALTER TABLE audit_events ENABLE ALWAYS TRIGGER audit_events_keep;
