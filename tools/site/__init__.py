"""The site: `python -m tools.site [FOLDER]` builds it from docs/ and from the docstrings; `make docs` calls it."""
