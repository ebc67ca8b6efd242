"""Where daemons are written down, found and started. Standard library only: the shim stands on this.

The registry file is a hint; the truth is a lock per `boot_id` which the daemon holds for its whole life and the
kernel frees when it dies. The shim, the command line and the daemon itself all find each other through here, by the
same rules.
"""
