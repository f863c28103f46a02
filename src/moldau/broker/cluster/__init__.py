"""The cluster as this broker sees it: the metadata it follows, its registration, its peers, and the
requests it passes on to the controller.
"""
