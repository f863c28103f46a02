"""What commands have in common: connecting, parsing, output, progress, completion, escaping."""
