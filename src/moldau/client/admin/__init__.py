"""Administration, one module per noun. What fails for one item is a value beside its siblings; what
fails as a whole is raised.
"""
