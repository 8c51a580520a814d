"""Modules of `torch` that are found as `undertow.<name>`: undertow's `__path__` ends with this folder.

Those that undertow has not are here, too, and say what to use instead. What undertow has in a room of its own is found
there first.
"""
