-- Of one kind of event by one user, the oldest beyond a number may be deleted too, so that no user fills the disk by repeating
-- a request. The newest stay: whoever deletes says how many, and a second trigger counts what is left.
CREATE OR REPLACE FUNCTION refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    retention_s float8 := nullif(current_setting('codehub.audit_retention_s', true), '')::float8;
    kept int := nullif(current_setting('codehub.audit_kept', true), '')::int;
BEGIN
    IF TG_OP = 'DELETE' AND retention_s >= 86400 AND OLD.at < now() - make_interval(secs => retention_s) THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'DELETE' AND kept >= 1000 THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit_events is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION check_audit_kept() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept int := nullif(current_setting('codehub.audit_kept', true), '')::int;
BEGIN
    IF kept IS NOT NULL AND EXISTS (
        SELECT 1 FROM (
            SELECT actor, actor_id, event, max(id) AS newest FROM gone GROUP BY actor, actor_id, event
        ) AS deleted
        WHERE kept > (
            SELECT count(*) FROM (
                SELECT 1 FROM audit_events AS left_over
                WHERE left_over.actor = deleted.actor AND left_over.actor_id IS NOT DISTINCT FROM deleted.actor_id
                    AND left_over.event = deleted.event AND left_over.id > deleted.newest
                LIMIT kept
            ) AS newer
        )
    ) THEN
        RAISE EXCEPTION 'audit_events is append-only: the newest events stay' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER audit_events_keep_newest AFTER DELETE ON audit_events REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION check_audit_kept();
ALTER TABLE audit_events ENABLE ALWAYS TRIGGER audit_events_keep_newest;
