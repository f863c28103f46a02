"""`moldau topics`: list, create, describe, alter and delete topics. `details` gathers what describe
shows.
"""
