"""Settings, each declared once: name, type, default, documentation, bounds. Everything else about a
setting follows from its declaration.
"""
