-- Why an operation waits although it has not failed: {"reason", "message", "since"}. Written by the controller.
ALTER TABLE workspaces ADD COLUMN blocked jsonb;
-- The error's message for users. NULL if an older version recorded the error.
ALTER TABLE workspaces ADD COLUMN error_message text;

CREATE OR REPLACE TRIGGER ws_sse_update AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (
        (OLD.name, OLD.description, OLD.memo, OLD.owner_user_id, OLD.image_ref, OLD.conditions, OLD.phase,
         OLD.phase_changed_at, OLD.operation, OLD.progress, OLD.archive_key, OLD.desired_state, OLD.error_reason,
         OLD.error_count, OLD.deleted_at, OLD.blocked, OLD.error_message)
        IS DISTINCT FROM
        (NEW.name, NEW.description, NEW.memo, NEW.owner_user_id, NEW.image_ref, NEW.conditions, NEW.phase,
         NEW.phase_changed_at, NEW.operation, NEW.progress, NEW.archive_key, NEW.desired_state, NEW.error_reason,
         NEW.error_count, NEW.deleted_at, NEW.blocked, NEW.error_message))
    EXECUTE FUNCTION notify_workspace_shown();
