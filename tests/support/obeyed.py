"""What a terminal, a CI system or Pulumi's engine would obey in a text, instead of showing it."""

import re
import unicodedata

INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""The categories of characters that have no shape."""
_COMMAND = re.compile(r"\s*::|.*##(\w*)\[|.*<\{%")


def obeyed(text: str) -> list[str]:
    """Return the characters and lines of a text that somebody would obey."""
    chars = [char for char in text if char != "\n" and unicodedata.category(char) in INVISIBLE]
    return chars + [line for line in re.split("[\n\r]", text) if _COMMAND.match(line)]
