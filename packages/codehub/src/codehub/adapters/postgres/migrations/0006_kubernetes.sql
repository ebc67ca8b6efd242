-- The instance backend of Kubernetes is called `kubernetes`, as the runtime is. The first schema reserved `k8s`, which no
-- version ever wrote.
ALTER TABLE workspaces DROP CONSTRAINT workspaces_instance_backend_check;
ALTER TABLE workspaces ADD CONSTRAINT workspaces_instance_backend_check
    CHECK (instance_backend IN ('process', 'local-docker', 'kubernetes'));
