"""The random state that every test, and every row of a test of many, starts from."""

from __future__ import annotations

import random
import sys

import numpy as np


def seed_everything() -> None:
    random.seed(0)
    np.random.seed(0)
    if "undertow" in sys.modules:
        sys.modules["undertow"].manual_seed(0)
    if "torch" in sys.modules:  # its manual_seed() also keeps a traceback for each kind of GPU: half a millisecond
        sys.modules["torch"].default_generator.manual_seed(0)
