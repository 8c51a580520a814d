"""Makes csrc/plan.h of src/undertow/ops/declare/plans.py: places of fields, kinds, limits, and the version of both."""

from __future__ import annotations

import importlib.util
import sys
import zlib
from enum import IntEnum
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
PLANS = ROOT / "src" / "undertow" / "ops" / "declare" / "plans.py"
HEADER = ROOT / "csrc" / "plan.h"


def load(path: Path) -> ModuleType:
    """The plans, without importing undertow."""
    spec = importlib.util.spec_from_file_location("undertow_plans", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def c_name(name: str) -> str:
    """`SavedInput` -> `SAVED_INPUT`."""
    return "".join("_" + c if c.isupper() and k else c for k, c in enumerate(name)).upper()


def header(path: Path = PLANS) -> str:
    plans = vars(load(path))
    lines = [
        f"/* Made from {path.relative_to(ROOT)} by csrc/plan_header.py; not to be edited. */",
        "#ifndef UNDERTOW_PLAN_H",
        "#define UNDERTOW_PLAN_H",
        "",
        f'#define PLAN_VERSION "{zlib.crc32(path.read_bytes()):08x}"',
        "",
    ]
    lines += [f"#define {name} {value}" for name, value in plans.items() if name.startswith("MOST_")]
    for name, kind in plans.items():
        if isinstance(kind, type) and issubclass(kind, IntEnum) and kind is not IntEnum:
            members = ", ".join(f"{c_name(name)}_{m.name} = {m.value}" for m in kind)
            lines += ["", f"enum {name} {{ {members} }};"]
        elif hasattr(kind, "_fields"):
            fields = ", ".join(f"{c_name(name)}_{field.upper()}" for field in kind._fields)
            lines += ["", f"enum {{ {fields}, {c_name(name)}_SIZE }};"]
    return "\n".join([*lines, "", "#endif", ""])


def write() -> None:
    """Write the header, if it is not what it should be already."""
    text = header()
    if not HEADER.exists() or HEADER.read_text(encoding="utf-8") != text:
        HEADER.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
