-- How large the home was when it was last looked at; null when that is unknown. The Disk Runner writes both.
ALTER TABLE workspaces ADD COLUMN disk_bytes bigint CHECK (disk_bytes >= 0);
ALTER TABLE workspaces ADD COLUMN disk_checked_at timestamptz;
CREATE TRIGGER ws_sse_disk AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (OLD.disk_bytes IS DISTINCT FROM NEW.disk_bytes)
    EXECUTE FUNCTION notify_workspace_shown();
