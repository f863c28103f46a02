"""Tables in files as targets: Parquet, Delta, Iceberg. Each micro-batch appears in them once: tasks
write files aside, and the driver commits them.
"""
