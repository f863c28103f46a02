"""`moldau pipeline`: check, run, show and replay pipelines."""
