"""The last resort: an error that nobody expected ends a command with one line, and with code 2.

Code 1 would say that something does not fit.
"""

import os
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

UNREADABLE = 2
"""The exit code for what cannot be read, or cannot be judged."""
_TRACEBACK = "ML_FOUNDATIONS_TRACEBACK"
_MOST_CHARACTERS = 200


@contextmanager
def step(name: str) -> Generator[None]:
    """Let an unexpected error name the step in which it occurs."""
    try:
        yield
    except Exception as error:
        error.add_note(name)
        raise


def described(error: Exception) -> str:
    """Return an unexpected error in a line, with its place and step, and how to report it.

    If ML_FOUNDATIONS_TRACEBACK is set, it also prints the traceback.
    """
    if os.environ.get(_TRACEBACK):
        traceback.print_exception(error)
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" at {Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
    steps = "".join(f" while {note}" for note in getattr(error, "__notes__", [])[:1])
    text = " ".join(str(error)[:_MOST_CHARACTERS].split())
    return (
        f"an unexpected {type(error).__name__}{where}{steps}: {text or 'no message'}. This is a "
        "fault of ML Foundations. Report it as SECURITY.md shows, without your secrets; "
        f"{_TRACEBACK}=1 prints where it is from"
    )
