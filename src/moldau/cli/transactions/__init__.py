"""`moldau transactions`: state, producers, and hanging transactions. `details` has the rows that
several commands show.
"""
