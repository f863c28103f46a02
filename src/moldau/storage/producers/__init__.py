"""What a partition knows of its idempotent and transactional producers, and how that survives a
restart.
"""
