-- The second half of a session. The dashboard keeps it in storage of its origin, because a cookie is sent to every port of
-- the host. Sessions without one have ended: their users sign in again.
ALTER TABLE sessions ADD COLUMN key_hash bytea;
