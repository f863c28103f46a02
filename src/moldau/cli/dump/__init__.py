"""`moldau dump`: files of a log directory as text, tables or JSON. Everything here only renders;
`storage.inspection` reads.
"""
