"""The command line as ``python -m dtrees``, if its script is not on the path."""

from __future__ import annotations

from dtrees.cli import main

if __name__ == "__main__":
    main()
