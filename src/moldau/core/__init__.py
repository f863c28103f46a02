"""Everything that decides: synchronous state machines without clock, chance, files or sockets."""
