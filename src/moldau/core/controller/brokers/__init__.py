"""Which brokers and controllers exist and are alive: registrations, sessions, directories.
Registrations are in the metadata log, sessions only in the active controller's memory.
"""
