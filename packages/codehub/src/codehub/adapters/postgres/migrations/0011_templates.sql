-- Templates, which administrators offer to users. Design: docs/adr/0450.
CREATE TABLE templates (
    name        text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    created_at  timestamptz NOT NULL,
    -- No longer offered. Pushing it again offers it again.
    archived_at timestamptz
);

-- Append-only: a version never changes.
CREATE TABLE template_versions (
    name       text NOT NULL REFERENCES templates (name),
    version    integer NOT NULL CHECK (version > 0),
    source     text NOT NULL CHECK (length(source) <= 262144),
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    PRIMARY KEY (name, version)
);
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME;
END $$;
CREATE TRIGGER template_versions_are_append_only BEFORE UPDATE OR DELETE ON template_versions
    FOR EACH ROW EXECUTE FUNCTION refuse_change();

-- The applied template with its parameters filled in (codehub.domain.applied_template). The workspace service writes
-- `template_next`; the controller moves it to `template` in the transaction that begins a start.
ALTER TABLE workspaces ADD COLUMN template jsonb;
ALTER TABLE workspaces ADD COLUMN template_next jsonb;
-- The newest version of its template. Written when one is pushed.
ALTER TABLE workspaces ADD COLUMN template_latest integer;
CREATE INDEX workspaces_by_template ON workspaces ((template ->> 'name')) WHERE template IS NOT NULL;

-- The time zone of the user's schedules. Empty: UTC.
ALTER TABLE users ADD COLUMN time_zone text NOT NULL DEFAULT '';

CREATE TRIGGER ws_sse_template AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (
        (OLD.template, OLD.template_next, OLD.template_latest)
        IS DISTINCT FROM (NEW.template, NEW.template_next, NEW.template_latest))
    EXECUTE FUNCTION notify_workspace_shown();

-- The workspace that this one was copied from. It may use an archive of the original, which the GC then keeps.
-- Not a foreign key: the original may be purged.
ALTER TABLE workspaces ADD COLUMN copy_of text;
CREATE INDEX workspaces_that_are_copies ON workspaces (id) WHERE copy_of IS NOT NULL;
CREATE INDEX workspace_archives_by_key ON workspace_archives (archive_key);
ALTER TABLE workspaces DROP CONSTRAINT workspaces_operation_check;
ALTER TABLE workspaces ADD CONSTRAINT workspaces_operation_check
    CHECK (operation IN ('NONE', 'PROVISIONING', 'CREATE_EMPTY_ARCHIVE', 'DUPLICATING', 'RESTORING', 'STARTING',
                         'STOPPING', 'ARCHIVING', 'DELETING'));
