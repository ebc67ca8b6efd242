-- The start time of the operation that the owner cancelled. The workspace service writes it; the controller compares it
-- with op_started_at, so that a later operation is not affected.
ALTER TABLE workspaces ADD COLUMN cancel_op_started_at timestamptz;
