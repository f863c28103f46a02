"""`moldau pipeline`: check, test, run, watch and replay pipelines. Spark is imported only by the
commands that need it.
"""
