"""The brokers and controllers of the cluster: registrations, sessions, directories.
Registrations are in the metadata log, sessions only in the active controller's memory.
"""
