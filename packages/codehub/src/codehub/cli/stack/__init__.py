"""`codehub up`: starts embedded servers, then the three parts as child processes, supervised until Ctrl-C.

    data directory ──► PostgreSQL, Valkey ──► migrate, admin ──► serve api │ serve proxy │ serve coordinator
        (lock)            (embedded)                              (children; one that ends is started again)

The children are the same commands a production installation runs; `up` only adds the embedded servers.
"""
