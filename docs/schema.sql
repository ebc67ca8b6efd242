-- Written by `python -m testing.codehub.schema` from the migrations; a test keeps it fresh.
CREATE FUNCTION public.check_audit_kept() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    kept int := nullif(current_setting('codehub.audit_kept', true), '')::int;
BEGIN
    IF kept IS NOT NULL AND EXISTS (
        SELECT 1 FROM (
            SELECT actor, actor_id, event, max(id) AS newest FROM gone GROUP BY actor, actor_id, event
        ) AS deleted
        WHERE kept > (
            SELECT count(*) FROM (
                SELECT 1 FROM audit_events AS left_over
                WHERE left_over.actor = deleted.actor AND left_over.actor_id IS NOT DISTINCT FROM deleted.actor_id
                    AND left_over.event = deleted.event AND left_over.id > deleted.newest
                LIMIT kept
            ) AS newer
        )
    ) THEN
        RAISE EXCEPTION 'audit_events is append-only: the newest events stay' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NULL;
END $$;
CREATE FUNCTION public.notify_workspace_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('ws_deleted', json_build_object('id', NEW.id, 'owner', NEW.owner_user_id)::text);
    RETURN NULL;
END $$;
CREATE FUNCTION public.notify_workspace_shown() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('ws_sse', json_build_object('id', NEW.id, 'owner', NEW.owner_user_id)::text);
    RETURN NULL;
END $$;
CREATE FUNCTION public.notify_workspace_wake() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM pg_notify('ws_wake', json_build_object('id', NEW.id)::text);
    RETURN NULL;
END $$;
CREATE FUNCTION public.refuse_audit_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
DECLARE
    retention_s float8 := nullif(current_setting('codehub.audit_retention_s', true), '')::float8;
    kept int := nullif(current_setting('codehub.audit_kept', true), '')::int;
BEGIN
    IF TG_OP = 'DELETE' AND retention_s >= 86400 AND OLD.at < now() - make_interval(secs => retention_s) THEN
        RETURN OLD;
    END IF;
    IF TG_OP = 'DELETE' AND kept >= 1000 THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'audit_events is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE FUNCTION public.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are never changed', TG_TABLE_NAME;
END $$;
CREATE TABLE public.api_tokens (
    id text NOT NULL,
    user_id text NOT NULL,
    name text NOT NULL,
    secret_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    last_used_at timestamp with time zone,
    workspace_id text,
    CONSTRAINT api_tokens_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255)))
);
CREATE TABLE public.archive_orphans (
    archive_key text NOT NULL,
    workspace_id text NOT NULL,
    op_id text NOT NULL,
    first_seen_at timestamp with time zone NOT NULL
);
CREATE TABLE public.audit_events (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    event text NOT NULL,
    actor text NOT NULL,
    actor_id text,
    token_id text,
    address text NOT NULL,
    target text NOT NULL,
    workspace_id text,
    detail jsonb NOT NULL
);
ALTER TABLE public.audit_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.git_credentials (
    id text NOT NULL,
    user_id text NOT NULL,
    scheme text NOT NULL,
    host text NOT NULL,
    username text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT git_credentials_scheme_check CHECK ((scheme = ANY (ARRAY['https'::text, 'http'::text])))
);
CREATE TABLE public.git_keys (
    user_id text NOT NULL,
    public_key text NOT NULL,
    sealed bytea NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.login_failures (
    username text NOT NULL,
    address text NOT NULL,
    failures integer NOT NULL,
    locked_until timestamp with time zone,
    last_at timestamp with time zone NOT NULL
);
CREATE TABLE public.login_links (
    secret_hash bytea NOT NULL,
    user_id text NOT NULL,
    token_id text,
    workspace_id text,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.port_links (
    id text NOT NULL,
    secret_hash bytea NOT NULL,
    workspace_id text NOT NULL,
    port integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.proxy_sessions (
    secret_hash bytea NOT NULL,
    session_id text NOT NULL,
    workspace_id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.proxy_tickets (
    ticket_hash bytea NOT NULL,
    nonce_hash bytea NOT NULL,
    session_id text NOT NULL,
    workspace_id text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.sessions (
    id text NOT NULL,
    user_id text NOT NULL,
    secret_hash bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone DEFAULT now() NOT NULL,
    address text DEFAULT ''::text NOT NULL,
    user_agent text DEFAULT ''::text NOT NULL,
    token_id text,
    key_hash bytea
);
CREATE TABLE public.ssh_keys (
    id text NOT NULL,
    user_id text NOT NULL,
    name text NOT NULL,
    public_key text NOT NULL,
    fingerprint text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.system_facts (
    name text NOT NULL,
    value jsonb NOT NULL
);
CREATE TABLE public.system_locks (
    lock_name text NOT NULL,
    epoch bigint DEFAULT 0 NOT NULL,
    holder_id text DEFAULT ''::text NOT NULL,
    acquired_at timestamp with time zone,
    components jsonb DEFAULT '{}'::jsonb NOT NULL
);
CREATE TABLE public.template_versions (
    name text NOT NULL,
    version integer NOT NULL,
    source text NOT NULL,
    created_by text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT template_versions_source_check CHECK ((length(source) <= 262144)),
    CONSTRAINT template_versions_version_check CHECK ((version > 0))
);
CREATE TABLE public.templates (
    name text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    archived_at timestamp with time zone,
    CONSTRAINT templates_name_check CHECK ((name ~ '^[a-z0-9][a-z0-9-]{0,62}$'::text))
);
CREATE TABLE public.user_secrets (
    user_id text NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    sealed bytea NOT NULL,
    bytes integer NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT user_secrets_kind_check CHECK ((kind = ANY (ARRAY['env'::text, 'file'::text])))
);
CREATE TABLE public.users (
    id text NOT NULL,
    username text NOT NULL,
    password_hash text NOT NULL,
    is_admin boolean DEFAULT false NOT NULL,
    disabled_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    time_zone text DEFAULT ''::text NOT NULL,
    setup_revision bigint DEFAULT 0 NOT NULL,
    dotfiles_url text DEFAULT ''::text NOT NULL,
    dotfiles_ref text DEFAULT ''::text NOT NULL,
    CONSTRAINT users_username_check CHECK (((length(username) >= 1) AND (length(username) <= 64)))
);
CREATE TABLE public.workspace_archives (
    workspace_id text NOT NULL,
    archive_key text NOT NULL,
    op_id text NOT NULL,
    committed_at timestamp with time zone NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL,
    CONSTRAINT workspace_archives_bytes_check CHECK ((bytes >= 0)),
    CONSTRAINT workspace_archives_sha256_check CHECK ((sha256 ~ '^[0-9a-f]{64}$'::text))
);
CREATE TABLE public.workspace_events (
    id bigint NOT NULL,
    workspace_id text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    kind text NOT NULL,
    message text NOT NULL,
    actor text DEFAULT 'codehub'::text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);
ALTER TABLE public.workspace_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.workspace_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.workspace_host_keys (
    workspace_id text NOT NULL,
    private_key text NOT NULL,
    public_key text NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE TABLE public.workspace_ports (
    workspace_id text NOT NULL,
    port integer NOT NULL,
    share text NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    CONSTRAINT workspace_ports_port_check CHECK (((port >= 1) AND (port <= 65535))),
    CONSTRAINT workspace_ports_share_check CHECK ((share = ANY (ARRAY['owner'::text, 'users'::text, 'link'::text])))
);
CREATE TABLE public.workspaces (
    id text NOT NULL,
    owner_user_id text NOT NULL,
    name text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    memo text DEFAULT ''::text NOT NULL,
    image_ref text NOT NULL,
    instance_backend text NOT NULL,
    storage_backend text NOT NULL,
    home_store_key text NOT NULL,
    home_ctx jsonb,
    conditions jsonb DEFAULT '{}'::jsonb NOT NULL,
    phase text DEFAULT 'PENDING'::text NOT NULL,
    phase_changed_at timestamp with time zone DEFAULT now() NOT NULL,
    operation text DEFAULT 'NONE'::text NOT NULL,
    op_started_at timestamp with time zone,
    progress jsonb,
    archive_op_id text,
    archive_key text,
    desired_state text NOT NULL,
    observed_at timestamp with time zone,
    last_access_at timestamp with time zone,
    error_reason text,
    error_count integer DEFAULT 0 NOT NULL,
    retry_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    purged_at timestamp with time zone,
    blocked jsonb,
    error_message text,
    keep_awake_until timestamp with time zone,
    busy_reason text,
    busy_since timestamp with time zone,
    busy_at timestamp with time zone,
    template jsonb,
    template_next jsonb,
    template_latest integer,
    copy_of text,
    repo jsonb,
    setup jsonb,
    setup_retry integer DEFAULT 0 NOT NULL,
    setup_instance text,
    setup_owner text,
    cancel_op_started_at timestamp with time zone,
    disk_bytes bigint,
    disk_checked_at timestamp with time zone,
    dev_image jsonb,
    dev_image_next jsonb,
    dev_image_auto boolean DEFAULT false NOT NULL,
    CONSTRAINT error_has_no_operation CHECK (((phase <> 'ERROR'::text) OR (operation = 'NONE'::text))),
    CONSTRAINT purged_was_deleted CHECK (((purged_at IS NULL) OR (deleted_at IS NOT NULL))),
    CONSTRAINT workspaces_desired_state_check CHECK ((desired_state = ANY (ARRAY['RUNNING'::text, 'STANDBY'::text, 'ARCHIVED'::text, 'DELETED'::text]))),
    CONSTRAINT workspaces_disk_bytes_check CHECK ((disk_bytes >= 0)),
    CONSTRAINT workspaces_error_count_check CHECK ((error_count >= 0)),
    CONSTRAINT workspaces_id_check CHECK ((id ~ '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'::text)),
    CONSTRAINT workspaces_image_ref_check CHECK (((length(image_ref) >= 1) AND (length(image_ref) <= 512))),
    CONSTRAINT workspaces_instance_backend_check CHECK ((instance_backend = ANY (ARRAY['process'::text, 'local-docker'::text, 'kubernetes'::text]))),
    CONSTRAINT workspaces_name_check CHECK (((length(name) >= 1) AND (length(name) <= 255))),
    CONSTRAINT workspaces_operation_check CHECK ((operation = ANY (ARRAY['NONE'::text, 'PROVISIONING'::text, 'CREATE_EMPTY_ARCHIVE'::text, 'DUPLICATING'::text, 'RESTORING'::text, 'STARTING'::text, 'STOPPING'::text, 'ARCHIVING'::text, 'DELETING'::text]))),
    CONSTRAINT workspaces_phase_check CHECK ((phase = ANY (ARRAY['PENDING'::text, 'ARCHIVED'::text, 'STANDBY'::text, 'RUNNING'::text, 'ERROR'::text, 'DELETING'::text, 'DELETED'::text]))),
    CONSTRAINT workspaces_storage_backend_check CHECK ((storage_backend = ANY (ARRAY['local-dir'::text, 'docker-volume'::text, 'pvc'::text])))
);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_secret_hash_key UNIQUE (secret_hash);
ALTER TABLE ONLY public.archive_orphans
    ADD CONSTRAINT archive_orphans_pkey PRIMARY KEY (archive_key);
ALTER TABLE ONLY public.audit_events
    ADD CONSTRAINT audit_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.git_credentials
    ADD CONSTRAINT git_credentials_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.git_credentials
    ADD CONSTRAINT git_credentials_user_id_scheme_host_key UNIQUE (user_id, scheme, host);
ALTER TABLE ONLY public.git_keys
    ADD CONSTRAINT git_keys_pkey PRIMARY KEY (user_id);
ALTER TABLE ONLY public.login_failures
    ADD CONSTRAINT login_failures_pkey PRIMARY KEY (username, address);
ALTER TABLE ONLY public.login_links
    ADD CONSTRAINT login_links_pkey PRIMARY KEY (secret_hash);
ALTER TABLE ONLY public.port_links
    ADD CONSTRAINT port_links_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.port_links
    ADD CONSTRAINT port_links_secret_hash_key UNIQUE (secret_hash);
ALTER TABLE ONLY public.proxy_sessions
    ADD CONSTRAINT proxy_sessions_pkey PRIMARY KEY (secret_hash);
ALTER TABLE ONLY public.proxy_tickets
    ADD CONSTRAINT proxy_tickets_pkey PRIMARY KEY (ticket_hash);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_secret_hash_key UNIQUE (secret_hash);
ALTER TABLE ONLY public.ssh_keys
    ADD CONSTRAINT ssh_keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.ssh_keys
    ADD CONSTRAINT ssh_keys_user_id_fingerprint_key UNIQUE (user_id, fingerprint);
ALTER TABLE ONLY public.system_facts
    ADD CONSTRAINT system_facts_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.system_locks
    ADD CONSTRAINT system_locks_pkey PRIMARY KEY (lock_name);
ALTER TABLE ONLY public.template_versions
    ADD CONSTRAINT template_versions_pkey PRIMARY KEY (name, version);
ALTER TABLE ONLY public.templates
    ADD CONSTRAINT templates_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.user_secrets
    ADD CONSTRAINT user_secrets_pkey PRIMARY KEY (user_id, name);
ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_username_key UNIQUE (username);
ALTER TABLE ONLY public.workspace_archives
    ADD CONSTRAINT workspace_archives_pkey PRIMARY KEY (workspace_id, op_id);
ALTER TABLE ONLY public.workspace_events
    ADD CONSTRAINT workspace_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.workspace_host_keys
    ADD CONSTRAINT workspace_host_keys_pkey PRIMARY KEY (workspace_id);
ALTER TABLE ONLY public.workspace_ports
    ADD CONSTRAINT workspace_ports_pkey PRIMARY KEY (workspace_id, port);
ALTER TABLE ONLY public.workspaces
    ADD CONSTRAINT workspaces_pkey PRIMARY KEY (id);
CREATE INDEX api_tokens_by_user ON public.api_tokens USING btree (user_id);
CREATE INDEX audit_events_actor ON public.audit_events USING btree (actor, id);
CREATE INDEX audit_events_at ON public.audit_events USING btree (at);
CREATE INDEX audit_events_sign_ins ON public.audit_events USING btree (actor, address, at) WHERE (event = 'sign_in.succeeded'::text);
CREATE INDEX audit_events_workspace ON public.audit_events USING btree (workspace_id, id) WHERE (workspace_id IS NOT NULL);
CREATE INDEX login_links_by_expiry ON public.login_links USING btree (expires_at);
CREATE INDEX login_links_by_token ON public.login_links USING btree (token_id) WHERE (token_id IS NOT NULL);
CREATE INDEX port_links_by_workspace ON public.port_links USING btree (workspace_id, port);
CREATE INDEX proxy_sessions_by_session ON public.proxy_sessions USING btree (session_id);
CREATE INDEX proxy_tickets_by_expiry ON public.proxy_tickets USING btree (expires_at);
CREATE INDEX sessions_by_expiry ON public.sessions USING btree (expires_at);
CREATE INDEX sessions_by_token ON public.sessions USING btree (token_id) WHERE (token_id IS NOT NULL);
CREATE INDEX sessions_by_user ON public.sessions USING btree (user_id);
CREATE INDEX workspace_archives_by_age ON public.workspace_archives USING btree (workspace_id, committed_at DESC);
CREATE INDEX workspace_archives_by_key ON public.workspace_archives USING btree (archive_key);
CREATE INDEX workspace_events_by_workspace ON public.workspace_events USING btree (workspace_id, id DESC);
CREATE INDEX workspaces_by_age ON public.workspaces USING btree (created_at DESC, id) WHERE (deleted_at IS NULL);
CREATE INDEX workspaces_by_owner ON public.workspaces USING btree (owner_user_id, created_at DESC, id) WHERE (deleted_at IS NULL);
CREATE INDEX workspaces_by_template ON public.workspaces USING btree (((template ->> 'name'::text))) WHERE (template IS NOT NULL);
CREATE INDEX workspaces_that_are_copies ON public.workspaces USING btree (id) WHERE (copy_of IS NOT NULL);
CREATE INDEX workspaces_that_want_to_run ON public.workspaces USING btree (owner_user_id) WHERE ((desired_state = 'RUNNING'::text) AND (deleted_at IS NULL));
CREATE INDEX workspaces_to_purge ON public.workspaces USING btree (deleted_at) WHERE ((deleted_at IS NOT NULL) AND (purged_at IS NULL));
CREATE INDEX workspaces_to_put_to_sleep ON public.workspaces USING btree (phase, phase_changed_at) WHERE ((operation = 'NONE'::text) AND (deleted_at IS NULL));
CREATE INDEX workspaces_under_way ON public.workspaces USING btree (id) WHERE ((operation <> 'NONE'::text) AND (deleted_at IS NULL));
CREATE TRIGGER audit_events_append_only BEFORE DELETE OR UPDATE ON public.audit_events FOR EACH ROW EXECUTE FUNCTION public.refuse_audit_change();
ALTER TABLE public.audit_events ENABLE ALWAYS TRIGGER audit_events_append_only;
CREATE TRIGGER audit_events_keep BEFORE TRUNCATE ON public.audit_events FOR EACH STATEMENT EXECUTE FUNCTION public.refuse_audit_change();
ALTER TABLE public.audit_events ENABLE ALWAYS TRIGGER audit_events_keep;
CREATE TRIGGER audit_events_keep_newest AFTER DELETE ON public.audit_events REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.check_audit_kept();
ALTER TABLE public.audit_events ENABLE ALWAYS TRIGGER audit_events_keep_newest;
CREATE TRIGGER template_versions_are_append_only BEFORE DELETE OR UPDATE ON public.template_versions FOR EACH ROW EXECUTE FUNCTION public.refuse_change();
CREATE TRIGGER ws_deleted_update AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN (((old.deleted_at IS NULL) AND (new.deleted_at IS NOT NULL))) EXECUTE FUNCTION public.notify_workspace_deleted();
CREATE TRIGGER ws_sse_awake AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN ((((old.keep_awake_until IS DISTINCT FROM new.keep_awake_until) OR (old.busy_reason IS DISTINCT FROM new.busy_reason)) OR (old.busy_since IS DISTINCT FROM new.busy_since))) EXECUTE FUNCTION public.notify_workspace_shown();
CREATE TRIGGER ws_sse_disk AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN ((old.disk_bytes IS DISTINCT FROM new.disk_bytes)) EXECUTE FUNCTION public.notify_workspace_shown();
CREATE TRIGGER ws_sse_insert AFTER INSERT ON public.workspaces FOR EACH ROW EXECUTE FUNCTION public.notify_workspace_shown();
CREATE TRIGGER ws_sse_setup AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN (((old.setup IS DISTINCT FROM new.setup) OR (old.setup_retry IS DISTINCT FROM new.setup_retry))) EXECUTE FUNCTION public.notify_workspace_shown();
CREATE TRIGGER ws_sse_template AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN ((((old.template IS DISTINCT FROM new.template) OR (old.template_next IS DISTINCT FROM new.template_next)) OR (old.template_latest IS DISTINCT FROM new.template_latest))) EXECUTE FUNCTION public.notify_workspace_shown();
CREATE TRIGGER ws_sse_update AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN ((((((((((((((((((old.name IS DISTINCT FROM new.name) OR (old.description IS DISTINCT FROM new.description)) OR (old.memo IS DISTINCT FROM new.memo)) OR (old.owner_user_id IS DISTINCT FROM new.owner_user_id)) OR (old.image_ref IS DISTINCT FROM new.image_ref)) OR (old.conditions IS DISTINCT FROM new.conditions)) OR (old.phase IS DISTINCT FROM new.phase)) OR (old.phase_changed_at IS DISTINCT FROM new.phase_changed_at)) OR (old.operation IS DISTINCT FROM new.operation)) OR (old.progress IS DISTINCT FROM new.progress)) OR (old.archive_key IS DISTINCT FROM new.archive_key)) OR (old.desired_state IS DISTINCT FROM new.desired_state)) OR (old.error_reason IS DISTINCT FROM new.error_reason)) OR (old.error_count IS DISTINCT FROM new.error_count)) OR (old.deleted_at IS DISTINCT FROM new.deleted_at)) OR (old.blocked IS DISTINCT FROM new.blocked)) OR (old.error_message IS DISTINCT FROM new.error_message))) EXECUTE FUNCTION public.notify_workspace_shown();
CREATE TRIGGER ws_wake_dev_image AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN (((old.dev_image_next IS NULL) AND (new.dev_image_next IS NOT NULL))) EXECUTE FUNCTION public.notify_workspace_wake();
CREATE TRIGGER ws_wake_insert AFTER INSERT ON public.workspaces FOR EACH ROW EXECUTE FUNCTION public.notify_workspace_wake();
CREATE TRIGGER ws_wake_update AFTER UPDATE ON public.workspaces FOR EACH ROW WHEN (((old.desired_state IS DISTINCT FROM new.desired_state) OR ((old.error_reason IS NOT NULL) AND (new.error_reason IS NULL)) OR ((old.deleted_at IS NOT NULL) AND (new.deleted_at IS NULL)))) EXECUTE FUNCTION public.notify_workspace_wake();
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.git_credentials
    ADD CONSTRAINT git_credentials_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.git_keys
    ADD CONSTRAINT git_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.login_links
    ADD CONSTRAINT login_links_token_id_fkey FOREIGN KEY (token_id) REFERENCES public.api_tokens(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.login_links
    ADD CONSTRAINT login_links_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.login_links
    ADD CONSTRAINT login_links_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.port_links
    ADD CONSTRAINT port_links_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.proxy_sessions
    ADD CONSTRAINT proxy_sessions_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.sessions(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.proxy_sessions
    ADD CONSTRAINT proxy_sessions_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.proxy_tickets
    ADD CONSTRAINT proxy_tickets_session_id_fkey FOREIGN KEY (session_id) REFERENCES public.sessions(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.proxy_tickets
    ADD CONSTRAINT proxy_tickets_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_token_id_fkey FOREIGN KEY (token_id) REFERENCES public.api_tokens(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.ssh_keys
    ADD CONSTRAINT ssh_keys_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.template_versions
    ADD CONSTRAINT template_versions_name_fkey FOREIGN KEY (name) REFERENCES public.templates(name);
ALTER TABLE ONLY public.user_secrets
    ADD CONSTRAINT user_secrets_user_id_fkey FOREIGN KEY (user_id) REFERENCES public.users(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.workspace_archives
    ADD CONSTRAINT workspace_archives_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.workspace_events
    ADD CONSTRAINT workspace_events_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.workspace_host_keys
    ADD CONSTRAINT workspace_host_keys_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.workspace_ports
    ADD CONSTRAINT workspace_ports_workspace_id_fkey FOREIGN KEY (workspace_id) REFERENCES public.workspaces(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.workspaces
    ADD CONSTRAINT workspaces_owner_user_id_fkey FOREIGN KEY (owner_user_id) REFERENCES public.users(id);
