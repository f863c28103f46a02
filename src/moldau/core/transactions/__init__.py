"""The transaction coordinator's decisions: functions from a transaction and a request to its next
state. Only the shard requests effects.
"""
