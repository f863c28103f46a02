"""`moldau bench`: a broker under load."""
