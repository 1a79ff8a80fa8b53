"""What a catalog's error says about a commit: whether it is refused for what it asks, or for who asks."""

from __future__ import annotations

# By name, so that nothing of a catalog that is not used has to be installed or imported. A token that has run out is
# not among them: the stream is opened anew with another.
_DENIED = {
    ("pyiceberg.exceptions", "BadRequestError"),
    ("pyiceberg.exceptions", "ForbiddenError"),
    ("pyiceberg.exceptions", "ValidationError"),
    ("pyiceberg.exceptions", "ValidationException"),
    ("builtins", "NotImplementedError"),
    ("builtins", "PermissionError"),
}
# Of AWS's catalogs, whose client has one class for all errors.
_DENIED_CODES = {"AccessDenied", "AccessDeniedException", "InvalidInputException", "ValidationException"}


def is_denied(problem: BaseException) -> bool:
    """Whether a catalog refused a commit for what it asks, or for who asks: the same answer comes to every attempt."""
    if any((kind.__module__, kind.__name__) in _DENIED for kind in type(problem).__mro__):
        return True
    response = getattr(problem, "response", None)
    error = response.get("Error") if isinstance(response, dict) else None
    return isinstance(error, dict) and error.get("Code") in _DENIED_CODES
