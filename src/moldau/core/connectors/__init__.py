"""What connectors decide: pages and cursors of HTTP answers, statements for PostgreSQL. They send
nothing themselves.
"""
