"""Files and the calls that reach the disk: everything above goes through `FileSystem`, so that a
test can put a failing disk below it.
"""
