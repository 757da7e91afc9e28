"""Errors in the form in which Google's APIs and the gcp provider give them."""

from ml_foundations.rehearsal.plugins.provider import RENAMED
from ml_foundations.rehearsal.progress import RehearsalError


class GoogleApiError(RehearsalError):
    """An answer of a Google API that is not a success."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"googleapi: Error {code}: {message}")


def bad_request(message: str) -> GoogleApiError:
    """A request that Google would refuse for what it asks."""
    return GoogleApiError(400, f"{message}, badRequest")


def not_found(what: str) -> GoogleApiError:
    """A request about something that does not exist."""
    return GoogleApiError(404, f"Not found: {what}., notFound")


def already_exists(what: str) -> GoogleApiError:
    """A request to make something that exists."""
    return GoogleApiError(409, f"Already exists: {what}., alreadyExists. {RENAMED}")
