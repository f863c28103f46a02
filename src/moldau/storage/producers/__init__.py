"""A partition's state of its idempotent and transactional producers, and its recovery after a
restart. The state is a function of the log: everything here can be rebuilt from it.
"""
