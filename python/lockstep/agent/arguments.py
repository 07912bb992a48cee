"""Requests that cannot be met, and the arguments of those that can."""


class Refused(Exception):
    """A request that cannot be met: code, message, hint. A hint follows "try", or begins with "expected"."""

    def __init__(self, code, message, hint="", **more):
        super().__init__(message)
        self.code, self.message, self.hint, self.more = code, message, hint, more


def integer(args, name, default=None, low=None, high=None):
    value = args.get(name, default)
    if value is default:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise Refused("bad_request", f"{name} is a {type(value).__name__}", "expected a whole number")
    if (low is not None and value < low) or (high is not None and value > high):
        raise Refused("bad_request", f"{name} is {value}", f"expected {low} to {high}")
    return value


def text(args, name, default=None, needed=False, most=100_000):
    value = args.get(name, default)
    if value is None and not needed:
        return default
    if not isinstance(value, str):
        raise Refused(
            "bad_request",
            f"{name} is missing" if value is None else f"{name} is a {type(value).__name__}",
            "expected text",
        )
    if len(value) > most:
        raise Refused("too_large", f"{name} has {len(value)} characters", f"expected at most {most}")
    return value
