"""One node's life: formatting its directories, assembling its parts, starting, and stopping. Only
this package knows all parts of a node.
"""
