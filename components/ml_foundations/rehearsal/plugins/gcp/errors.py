"""Errors in the words of Google's APIs and the gcp provider."""

from ml_foundations.rehearsal.plugins.provider import RENAMED
from ml_foundations.rehearsal.progress import RehearsalError


class GoogleApiError(RehearsalError):
    """An error response of a Google API."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"googleapi: Error {code}: {message}")


def bad_request(message: str) -> GoogleApiError:
    """Return the error for an invalid request."""
    return GoogleApiError(400, f"{message}, badRequest")


def not_found(what: str) -> GoogleApiError:
    """Return the error for a resource that does not exist."""
    return GoogleApiError(404, f"Not found: {what}., notFound")


def already_exists(what: str) -> GoogleApiError:
    """Return the error for a new resource that exists already."""
    return GoogleApiError(409, f"Already exists: {what}., alreadyExists. {RENAMED}")
