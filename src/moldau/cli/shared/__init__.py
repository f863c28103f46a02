"""The common parts of all commands: connecting,: connecting, parsing, output, progress, completion,
escaping. Nothing here knows a particular command.
"""
