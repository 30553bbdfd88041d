"""The script `tessc`, and `python -m tessera`."""

from __future__ import annotations

import sys

INTERRUPTED = 130
"""Equal to `ExitCode.INTERRUPTED`, which is not imported yet."""


def main() -> None:
    """Run the command line and exit; Ctrl-C during imports ends it as it does later."""
    try:
        from tessera.cli.main import main as run_and_exit
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run_and_exit()


if __name__ == "__main__":
    main()
