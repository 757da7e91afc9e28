"""Names that a user misspells, and the known names that are most similar to them."""

import re
from collections.abc import Collection, Iterable, Sequence
from difflib import SequenceMatcher

from ml_foundations.kubernetes.words import alternatives, names

_MOST = 3
_SIMILAR = 0.6
"""The least similarity of a name that is worth showing, from 0 to 1."""
_LONGEST = 253
"""The most characters of a name of Kubernetes: a longer text is not a misspelled name."""


def nearest_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three known names that are similar to a name, the most similar first.

    Capitals, underscores and dashes do not count: for sharedMemory, only shared_memory is returned.
    Common words and abbreviations count: gpus is similar to gpu_count, and shm_size to
    shared_memory.
    """
    if len(name) > _LONGEST:
        return []
    comparable = [candidate for candidate in known if len(candidate) <= _LONGEST]
    scores = {candidate: _similarity(name, candidate) for candidate in comparable}
    similar = sorted(
        (-score, candidate) for candidate, score in scores.items() if score >= _SIMILAR
    )
    is_exact = bool(similar) and similar[0][0] == -1
    return [candidate for _, candidate in similar[: 1 if is_exact else _MOST]]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a question with the nearest names, such as "Did you mean gpu?", or nothing."""
    near = nearest_names(name, known)
    return f"Did you mean {alternatives(near)}?" if near else ""


def not_among(name: str, what: str, known: Collection[str]) -> str:
    """Return why a name is rejected: 'there is no port "htp". Did you mean http? Known: http'."""
    reason = f'there is no {what} "{name}".'
    return " ".join(filter(None, [reason, did_you_mean(name, known), f"Known: {names(known)}"]))


def _similarity(name: str, known: str) -> float:
    """Return 1 for names that differ in capitals and separators only, less for other names."""
    given_words = _words(name)
    known_words = _words(known)
    given_letters = "".join(given_words)
    known_letters = "".join(known_words)
    if given_letters == known_letters:
        return 1
    common = sum(_has_word(known_words, word) for word in given_words)
    shared = common / (len(given_words) + len(known_words) - common) if common else 0
    by_words = min((1 + shared) / 2, 0.95) if shared else 0
    return max(SequenceMatcher(None, given_letters, known_letters).ratio(), by_words)


def _words(name: str) -> list[str]:
    """Return the words of a name in snake_case, camelCase or with dashes, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def _has_word(words: Sequence[str], word: str) -> bool:
    """Return whether a word begins with one of the words, or abbreviates consecutive ones."""
    return any(
        word.startswith(words[start]) or _abbreviates(word, words[start:])
        for start in range(len(words))
    )


def _abbreviates(short: str, words: Sequence[str]) -> bool:
    """Return whether letters are the initials of the first words: shm of shared memory."""
    ends = {0}  # where the letters of the words so far may end
    for word in words:
        lengths = range(1, len(word) + 1)
        ends = {
            end + length
            for end in ends
            for length in lengths
            if short.startswith(word[:length], end)
        }
        if len(short) in ends:
            return True
    return False
