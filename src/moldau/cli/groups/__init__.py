"""`moldau groups`: members, lag, and resetting offsets. `reset_plan` decides the new offsets,
`reset` is the command around it.
"""
