"""Workspaces on Kubernetes: the API client, watches, instances as bare Pods, homes as PersistentVolumeClaims."""
