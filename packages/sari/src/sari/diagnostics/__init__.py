"""The checks of `sari doctor`: the daemon and its registry, the installation, the AI clients' configuration.

Layered above `registry` and `install`, whose state it reads, and below `web`, `daemon` and `cli`, which show the
findings.
"""
