"""Reading and writing tables of PostgreSQL. Statements are composed in `core.connectors`."""
