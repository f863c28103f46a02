"""Files and the system calls that reach the disk. All other storage code goes through `FileSystem`,
so that tests can replace the disk with a failing one.
"""
