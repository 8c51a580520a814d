"""SciPy's special functions, for those that undertow has no kernel of its own for. Imported on first use."""

from __future__ import annotations

from functools import cache
from typing import Any


@cache
def scipy_function(name: str) -> Any:
    """scipy.special.<name>"""
    try:
        from scipy import special
    except ImportError:
        raise ImportError(
            f"scipy.special.{name} is needed here, and SciPy is not installed: it comes with the extra 'special', "
            "pip install 'undertow[special]'."
        ) from None
    return getattr(special, name)
