"""`moldau topics`: list, describe, create, alter, delete."""
