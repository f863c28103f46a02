"""One partition's leader: what may be appended, what is committed, who waits."""
