"""Arguments that the classes of a family have in common are said once, by their base."""

from __future__ import annotations

from typing import Any


class SharedArguments:
    """A base whose docstring tells of arguments and shapes: `help` shows that for each class of the family, too."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        family = cls.__bases__[0]
        is_of_family = SharedArguments in family.__bases__ and cls.__module__ == family.__module__
        if is_of_family and cls.__doc__ and family.__doc__:  # python -OO keeps none
            shared = family.__doc__.partition("\n\n")[2].partition("\n\n    >>>")[0].rstrip()
            summary, mark, example = cls.__doc__.partition("\n\n    >>>")
            cls.__doc__ = f"{summary.rstrip()}\n\n{shared}{mark}{example}"
