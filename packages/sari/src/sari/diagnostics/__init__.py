"""What `sari doctor` checks: the daemon and its registry, the installation, the AI clients' configuration.

Above `registry` and `install`, whose state it reads; below `web`, `daemon` and `cli`, which show the findings.
"""
