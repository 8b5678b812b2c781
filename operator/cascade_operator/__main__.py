"""``cascade-operator``: the operator's process, configured by its environment."""

import asyncio
import sys

from . import launcher, settings


def main() -> int:
    """Exit code 0 after SIGTERM, 2 for wrong settings, 3 after the Lease was lost."""
    try:
        chosen = settings.from_environment()
    except settings.SettingsError as error:
        print(f"cascade-operator: {error}", file=sys.stderr)
        return 2
    launcher.configure_logging(chosen)
    return asyncio.run(launcher.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
