-- The image of a repository's devcontainer.json. Design: docs/adr/0480.

-- {"digest", "ref", "bases"}: what it runs with instead of its template's image, and what it is restarted with. The intent
-- to start moves the second to the first.
ALTER TABLE workspaces ADD COLUMN dev_image jsonb;
ALTER TABLE workspaces ADD COLUMN dev_image_next jsonb;
-- Whether the first image is applied without asking. False for workspaces that were made before this version.
ALTER TABLE workspaces ADD COLUMN dev_image_auto boolean NOT NULL DEFAULT false;

CREATE TRIGGER ws_wake_dev_image AFTER UPDATE ON workspaces
    FOR EACH ROW WHEN (OLD.dev_image_next IS NULL AND NEW.dev_image_next IS NOT NULL)
    EXECUTE FUNCTION notify_workspace_wake();
