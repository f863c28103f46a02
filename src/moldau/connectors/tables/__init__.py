"""Tables in files as targets: Parquet, Delta, Iceberg. Each micro-batch appears in them once: tasks
write files to a staging folder, and the driver commits them.
"""
