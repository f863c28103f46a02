"""Messages as bytes: the schema of a version, the codec that follows it, frames, primitive types.
Knows no API by name.
"""
