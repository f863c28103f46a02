"""The common parts of all commands: connecting, parsing, output, progress, completion, escaping.
Nothing here knows a particular command.
"""
