"""`moldau demo`: a node, a generator of orders and a pipeline in one terminal."""
