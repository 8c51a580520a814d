"""Calls from one process to another, which undertow does not have."""


def is_available() -> bool:
    return False
