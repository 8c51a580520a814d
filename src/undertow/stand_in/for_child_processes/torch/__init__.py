"""Found by processes that were started by `python -m undertow run`: undertow stands for PyTorch in them, too."""

import importlib
import sys


def stand_in() -> None:
    from undertow.stand_in.finder import install

    del sys.modules[__name__]
    install()
    importlib.import_module(__name__)


stand_in()
