-- The size of the home when it was last measured, and when that was. NULL: unknown. Written by the disk runner.
ALTER TABLE workspaces ADD COLUMN disk_bytes bigint CHECK (disk_bytes >= 0);
ALTER TABLE workspaces ADD COLUMN disk_checked_at timestamptz;
CREATE TRIGGER ws_sse_disk AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (OLD.disk_bytes IS DISTINCT FROM NEW.disk_bytes)
    EXECUTE FUNCTION notify_workspace_shown();
