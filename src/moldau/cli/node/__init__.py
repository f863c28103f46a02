"""Commands that run a node or open its directories: start, storage."""
