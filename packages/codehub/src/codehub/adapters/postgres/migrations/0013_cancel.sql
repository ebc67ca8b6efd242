-- The owner cancelled the operation that began then. The workspace service writes it; the controller compares it with
-- op_started_at, so a later operation is not affected.
ALTER TABLE workspaces ADD COLUMN cancel_op_started_at timestamptz;
