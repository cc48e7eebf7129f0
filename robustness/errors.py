"""The one exception for a user's mistake."""


class UsageError(ValueError):
    """What was asked for cannot be done; the message is one line that says why."""
