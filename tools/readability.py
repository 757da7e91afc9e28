"""Measure how readable code and pages are, or check them: ``make lint`` runs the check.

    python -m tools.readability [FOLDER ...]    print the measures of folders
    python -m tools.readability --check         print what STYLE.md forbids, and fail

Idioms are counted by sentence, in pages (without code, tables and generated parts), in docstrings
and in messages (text of four words or more).
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from tools import ROOT, plain_code

WIDTH = 100
LONGEST_TEST_NAME = 60
GENERATED = ("typed_args.py", "_pb2.py")
GENERATED_PAGES = ("docs/components/", "tests/", "benchmarks/results")
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
OPENINGS = re.compile(r"(What|Whether|Why|How|Where|Which|That|Whose|Who)\b")
_IDIOMS = yaml.load((ROOT / "tools" / "idioms.yaml").read_text(), yaml.CSafeLoader)
_IDIOM = re.compile("|".join(f"(?:{row['pattern']})" for row in _IDIOMS))
_COMMENT = re.compile(r"^\s*#|\s{2}# ")
_NOT_PROSE = re.compile(
    r"<!--.*?-->|```.*?```|^\|.*?$|^#.*?$|!?\[[^\]]*\]\(|\([^)\s]*\.(md|png|svg)[^)]*\)|`[^`\n]*`",
    re.DOTALL | re.MULTILINE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+|\n\s*\n|\n\s*[-*] |\|")


class Sentence(NamedTuple):
    """A sentence of a page, a docstring or a message."""

    file: Path
    line: int
    text: str

    @property
    def idiom(self) -> str:
        """The expression in it that STYLE.md forbids, or nothing."""
        match = _IDIOM.search(self.text)
        return match[0] if match else ""


class Module(NamedTuple):
    """A Python file, parsed."""

    file: Path
    lines: list[str]
    tree: ast.Module

    @classmethod
    def read(cls, file: Path) -> "Module":
        """Return a file's module."""
        text = file.read_text()
        return cls(file, text.splitlines(), ast.parse(text))

    def docstrings(self) -> Iterator[tuple[int, str]]:
        """Yield the docstrings of the module, its definitions and attributes, with their lines."""
        for node in ast.walk(self.tree):
            for child in ast.iter_child_nodes(node):
                match child:
                    case ast.Expr(value=ast.Constant(value=str(text))):
                        yield child.lineno, text
                    case _:
                        pass

    def openings(self) -> list[tuple[int, str]]:
        """Return the docstrings of classes and functions, with their lines."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, DOCUMENTED[1:]))
        documented = ((node.lineno, ast.get_docstring(node)) for node in nodes)
        return [(line, text) for line, text in documented if text]

    def messages(self) -> Iterator[tuple[int, str]]:
        """Yield texts of four words or more that are not docstrings, with their lines."""
        documented = {line for line, _ in self.docstrings()}
        for node in ast.walk(self.tree):
            match node:
                case ast.Constant(value=str(text)) if len(text.split()) > 3:
                    if node.lineno not in documented:
                        yield node.lineno, text
                case _:
                    pass

    def sentences(self) -> Iterator[Sentence]:
        """Yield the sentences of docstrings and messages."""
        for line, text in (*self.docstrings(), *self.messages()):
            for sentence in _sentences(text):
                yield Sentence(self.file, line, sentence)

    def comprehensions(self) -> int:
        """Return the number of comprehensions and generator expressions."""
        return sum(isinstance(node, COMPREHENSIONS) for node in ast.walk(self.tree))

    def nested_comprehensions(self) -> set[int]:
        """Return the lines of the comprehensions inside of other comprehensions."""
        return {
            inner.lineno
            for outer in ast.walk(self.tree)
            if isinstance(outer, COMPREHENSIONS)
            for inner in ast.walk(outer)
            if inner is not outer and isinstance(inner, COMPREHENSIONS)
        }


def _sentences(text: str) -> Iterator[str]:
    for part in _SENTENCE_END.split(text):
        sentence = " ".join(part.split())
        if len(sentence.split()) > 2:
            yield sentence


def page_sentences(page: Path) -> Iterator[Sentence]:
    """Yield the sentences of a page with the lines that they begin in, without code and tables."""
    text = page.read_text()
    prose = _NOT_PROSE.sub(lambda match: "x" + "\n" * match[0].count("\n"), text)
    position = 0
    for sentence in _SENTENCE_END.split(prose):
        if not sentence:
            continue
        position = max(prose.find(sentence, position), position)
        if len(sentence.split()) > 2:
            line = prose.count("\n", 0, position) + 1
            yield Sentence(page, line, " ".join(sentence.split()))


def files(folders: Iterable[str], *suffixes: str) -> list[Path]:
    """Return the committed files of folders that end with one of the suffixes, if not generated."""
    listed = subprocess.run(
        ["git", "ls-files", "--", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    names = [name for name in listed.stdout.splitlines() if name.endswith(suffixes)]
    names = [name for name in names if not name.startswith(GENERATED_PAGES)]
    return [ROOT / name for name in names if not name.endswith(GENERATED)]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "none"


def code_measures(modules: list[Module]) -> dict[str, str]:
    """Return the measures of code by name."""
    lines = [line for module in modules for line in module.lines]
    written = [line for line in lines if line.strip()]
    openings = [text for module in modules for _, text in module.openings()]
    sentences = [sentence for module in modules for sentence in module.sentences()]
    comprehensions = sum(module.comprehensions() for module in modules)
    nested = sum(len(module.nested_comprehensions()) for module in modules)
    thousands = len(lines) / 1000
    return {
        "lines": f"{len(lines):,}",
        "docstrings that open with What, Whether, …": _percent(
            sum(bool(OPENINGS.match(text)) for text in openings), len(openings)
        ),
        "sentences with idioms": _percent(
            sum(bool(sentence.idiom) for sentence in sentences), len(sentences)
        ),
        "comprehensions (nested) per 1,000 lines": (
            f"{comprehensions / thousands:.0f} ({nested / thousands:.1f})"
        ),
        "mean width": f"{sum(map(len, written)) / len(written):.1f}",
        f"lines over {WIDTH}": str(sum(len(line) > WIDTH for line in lines)),
        "comments per 100 lines": (
            f"{100 * sum(bool(_COMMENT.search(line)) for line in lines) / len(lines):.1f}"
        ),
    }


def page_measures(pages: list[Path]) -> dict[str, str]:
    """Return the measures of pages by name."""
    sentences = [sentence for page in pages for sentence in page_sentences(page)]
    prose = " ".join(sentence.text for sentence in sentences)
    per = 10_000 / max(len(prose.split()), 1)

    def frequency(pattern: str) -> str:
        return f"{len(re.findall(pattern, prose, re.IGNORECASE)) * per:.0f}"

    return {
        "words without code": f"{sum(map(_words, pages)):,}",
        "sentences with idioms": _percent(
            sum(bool(sentence.idiom) for sentence in sentences), len(sentences)
        ),
        "you per 10,000 words": frequency(r"\byou(r|rs)?\b"),
        "if per 10,000 words": frequency(r"\bif\b"),
        "for example per 10,000 words": frequency(r"\bfor (example|instance)\b"),
    }


def _words(page: Path) -> int:
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(), flags=re.DOTALL)
    return len(re.findall(r"[^\s|]*\w[^\s|]*", text))


def violations() -> Iterator[str]:
    """Yield what STYLE.md forbids: file, line, what it is and what to write."""
    for module in map(
        Module.read,
        files(["components", ":(glob)stacks/*.py", "policy", "codegen", "tools"], ".py"),
    ):
        for line, text in module.openings():
            if OPENINGS.match(text):
                start = text.splitlines()[0][:60]
                yield f"{module.file}:{line}: begin the docstring with a verb or a noun: {start}"
        for line in sorted(module.nested_comprehensions()):
            yield f"{module.file}:{line}: name the inner comprehension of a nested one"
        if str(module.file.relative_to(ROOT)).startswith(plain_code.CLEAN):
            for line, problem in plain_code.violations(module.tree):
                yield f"{module.file}:{line}: {problem}"
        yield from map(_idiom_violation, module.sentences())
    for test in files(["tests"], ".py"):
        for name in re.findall(r"def (test_\w+)", test.read_text()):
            if len(name) >= LONGEST_TEST_NAME:
                yield f"{test}: shorten {name} to less than {LONGEST_TEST_NAME} characters"
    for page in files(["*.md"], ".md"):
        if page.name != "STYLE.md":
            yield from map(_idiom_violation, page_sentences(page))


def _idiom_violation(sentence: Sentence) -> str:
    if not sentence.idiom:
        return ""
    write = next(row["write"] for row in _IDIOMS if re.search(row["pattern"], sentence.text))
    where = sentence.file.relative_to(ROOT)
    return f"{where}:{sentence.line}: {sentence.idiom!r} in {sentence.text[:80]!r}. Write {write}."


def _print(title: str, measures: dict[str, str]) -> None:
    print(title)
    for name, value in measures.items():
        print(f"  {name:45} {value:>10}")


def main() -> None:
    """Print the measures of the folders that the arguments name, or check."""
    if "--check" in sys.argv:
        lines = [line.replace(f"{ROOT}/", "") for line in violations() if line]
        sys.exit("\n".join([*lines, f"{len(lines)} violations of STYLE.md"]) if lines else 0)
    for folder in sys.argv[1:] or [
        "components stacks policy",
        "components/ml_foundations/planning",
        "*.md",
    ]:
        folders = folder.split()
        if modules := [Module.read(file) for file in files(folders, ".py")]:
            _print(folder, code_measures(modules))
        if pages := files(folders, ".md"):
            _print(folder, page_measures(pages))


if __name__ == "__main__":
    main()
