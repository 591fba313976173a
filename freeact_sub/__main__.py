"""The program `freeact-sub`, as `python -m freeact_sub`."""

import sys

from freeact_sub.cli import main

if __name__ == "__main__":
    sys.exit(main())
