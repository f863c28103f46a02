"""Commands that run a node or open its log directories: start, storage. The only ones besides
demo that import the broker.
"""
