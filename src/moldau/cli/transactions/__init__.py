"""`moldau transactions`: state, producers, and hanging ones."""
