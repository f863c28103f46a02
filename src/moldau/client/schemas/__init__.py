"""Records with schemas that a registry keeps, in Confluent's wire format. The libraries that read
and write them are extras.
"""
