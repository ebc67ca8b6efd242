-- The second half of a session: the dashboard keeps it in storage that belongs to its origin, unlike a cookie, which every
-- port of the host gets. A session without one is over: whoever has it signs in again.
ALTER TABLE sessions ADD COLUMN key_hash bytea;
