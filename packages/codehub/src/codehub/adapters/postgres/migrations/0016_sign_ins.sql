-- Whether a user signed in from an address lately is asked at each attempt to sign in, also by strangers. It must not take
-- longer the more other events there are of that user.
CREATE INDEX audit_events_sign_ins ON audit_events (actor, address, at) WHERE event = 'sign_in.succeeded';
