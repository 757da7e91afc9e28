"""``python -m ml_foundations.rehearsal``: the same as the command ``ml-foundations``."""

from ml_foundations.rehearsal.cli import main

if __name__ == "__main__":
    main()
