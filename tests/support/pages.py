"""The pages of the documentation, and the blocks of code in them."""

import re
from collections.abc import Iterator

from tests.support.checkout import CHECKOUT

PAGES = [
    CHECKOUT / "README.md",
    CHECKOUT / "CONTRIBUTING.md",
    *sorted((CHECKOUT / "docs").rglob("*.md")),
]
PAGES += sorted((CHECKOUT / "examples").rglob("README.md"))
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for index, (_, name, text) in enumerate(BLOCK.findall(page.read_text())):
            if name == language:
                yield f"{page.relative_to(CHECKOUT)}[{index}]", text
