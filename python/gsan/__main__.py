"""`python -m gsan doctor`: what of this Python works with GSan."""

from __future__ import annotations

import argparse
import sys

from . import __version__, _doctor


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m gsan", description="The Python side of GSan; the command is `gsan`."
    )
    parser.add_argument("--version", action="version", version=f"gsan {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="say what of this Python works with GSan")
    doctor.add_argument("--json", action="store_true", help="as a JSON list, for `gsan doctor`")
    given = parser.parse_args(arguments)
    checks = _doctor.checks()
    sys.stdout.write(_doctor.as_json(checks) if given.json else _doctor.as_text(checks))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
