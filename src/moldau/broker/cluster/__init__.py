"""The cluster as this broker sees it: the metadata it follows, its registration, its peers, and the
requests it forwards to the controller. Nothing here decides for the cluster; the controller
does.
"""
