"""Python imports this module as it starts: on the path of child processes it makes them as on macOS
before they import anything.
"""

from platforms import as_on_macos  # noqa: F401
