"""`workspaced`: the helper inside every running workspace.

It offers exec, processes, files, terminals, ports, byte streams and SSH to CodeHub only: every request carries the secret
of this start. It runs as the workspace's own user and has no other privileges.

Standard library only, Python 3.9 or newer, relative imports only: the folder is mounted into workspaces that have a
different interpreter than CodeHub, and started by file (`python -I -S workspaced/__main__.py`).
"""

VERSION = "0.2.0"
# Features that a CodeHub of another version may rely on. Features are added, never renamed.
FEATURES = ("exec", "processes", "files", "terminals", "ports", "tcp", "ssh", "activity", "setup")
