"""Generate all files, or list those that are not current with --check.

Run it with ``python -m codegen``.
"""

import subprocess
import sys

from codegen import ROOT, write


def main() -> None:
    """Make everything: first the arguments, in a separate process."""
    arguments = subprocess.run(
        [sys.executable, "-m", "codegen.arguments", *sys.argv[1:]], cwd=ROOT, check=False
    )
    if arguments.returncode:
        sys.exit(arguments.returncode)
    from codegen import (
        objects,
        package_schema,
        pages,
        rules_page,
        sdk,
        stack_page,
        stack_schema,
        stages_page,
    )

    if "--check" not in sys.argv:
        sdk.update()
    write(package_schema.files() | stack_schema.files())
    write(
        pages.files()
        | objects.files()
        | stack_page.files()
        | rules_page.files()
        | stages_page.files()
    )


if __name__ == "__main__":
    main()
