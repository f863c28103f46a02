"""What a consumer decides: membership of a group, positions, resets, what to fetch next and when to
commit. Events go in, effects come out.
"""
