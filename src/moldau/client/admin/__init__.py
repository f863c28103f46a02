"""Administration, one module per noun. An error of one item is a value in the result, beside the
results of the others; an error of the whole call is raised.
"""
