"""What all commands share: connecting, parsing, output, progress, completion, escaping. Nothing
here knows a particular command.
"""
