"""Registers, finds and starts daemons. Standard library only, because the shim depends on it.

The registry file is a hint. The source of truth is a lock per `boot_id`, which the daemon holds while it runs and which
the kernel releases when it dies. The shim, the command line and the daemon find each other through this package, by the
same rules.
"""
