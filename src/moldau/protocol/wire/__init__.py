"""Messages as bytes: the schema of a version, the codec that follows it, frames, primitive types.
Nothing here depends on a particular API.
"""
