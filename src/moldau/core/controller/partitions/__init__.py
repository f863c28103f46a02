"""Leaders and in-sync replicas: elections, AlterPartition, reassignments. Every change of a
partition goes through `partition_change`.
"""
