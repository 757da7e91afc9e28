"""Words that texts for users avoid."""

import re

AVOIDED = re.compile(
    r"\b(is told|tells?|says?|takes?|stands?|brings?|comes? with|beside|of (?:its|your) own|where|give|wrong|way out)\b"
)
"""Words that the style replaces: accept, set, add, is in, next to, if, separate, invalid, fix."""
