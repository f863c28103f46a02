"""`python -m moldau` is the `moldau` command."""

from moldau.cli import main

if __name__ == "__main__":
    main()
