"""For doctests: the package is imported as a whole before any single module of it is collected.

`--import-mode=importlib` runs a file that is not imported yet; if importing its package is what first imports it, it
runs twice, and an operation may be declared only once.
"""

import undertow  # noqa: F401
