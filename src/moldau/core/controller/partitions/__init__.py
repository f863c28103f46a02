"""Leaders and in-sync replicas: every election, every change of a partition, reassignments."""
