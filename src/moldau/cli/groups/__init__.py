"""`moldau groups`: members, lag, and resetting offsets."""
