"""What type checkers and editors can know of undertow: the package `undertow-stubs`, generated from the live library.

Operations are attached to modules and to Tensor when undertow is imported, so no checker finds them in the source. The
stubs say what is there: `python -m tools.stubs` writes them, `python -m tools.stubs --check` says whether they are
current. The package is a partial one (PEP 561): modules without a stub are read from their source.
"""
