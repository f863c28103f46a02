"""Python imports this module when it starts: on the path of child processes it makes them behave as
on macOS before they import anything.
"""

from platforms import as_on_macos  # noqa: F401
