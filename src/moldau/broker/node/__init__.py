"""One node's life: formatting its directories, assembling its parts, starting, and stopping."""
