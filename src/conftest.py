"""For doctests: every module of the package is imported before any single one is collected.

`--import-mode=importlib` runs a file that is not imported yet; if importing its package is what first imports it, it
runs twice, and an operation may be declared only once.
"""

import importlib
from pathlib import Path

from undertow.torch_names.missing import INSTEAD

HERE = Path(__file__).parent
TOP_LEVEL = HERE / "undertow" / "torch_names" / "top_level"  # its modules have other names: see there

#: modules that only say what to use instead, and what PyTorch's names in `utils` stand for
collect_ignore = [TOP_LEVEL / f"{name}.py" for name in INSTEAD] + [TOP_LEVEL / "utils"]

for path in sorted(HERE.glob("undertow/**/*.py")):
    if TOP_LEVEL not in path.parents and path.name != "__main__.py":
        parts = path.relative_to(HERE).with_suffix("").parts
        importlib.import_module(".".join(part for part in parts if part != "__init__"))
