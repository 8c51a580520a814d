"""Found by processes that were started by `python -m undertow run`: undertow stands for PyTorch in them, too."""

import sys


def stand_in() -> None:
    from undertow.stand_in.finder import found, install

    del sys.modules[__name__]
    install()
    sys.modules[__name__] = found(__name__)


if __name__ == "torch":
    stand_in()
