"""Copies of views, under names of their own, and detaching."""

from __future__ import annotations

from typing import Any

from tests.samples import Sample, normal


def cloned(name: str) -> Any:
    """The view, then a contiguous clone: what PyTorch's copying form does under a name of its own."""

    def reference(torch: Any, x: Any, *args: Any) -> Any:
        own = {
            "alias": lambda x: x.view_as(x),
            "slice": lambda x, d, a, b: x.narrow(d, a, b - a),
            "view_as_complex": torch.view_as_complex,
            "view_as_real": torch.view_as_real,
        }.get(name)
        found = own(x, *args) if own else getattr(x, name)(*args)
        parts = found if isinstance(found, list | tuple) else [found]
        copies = [part.clone(memory_format=torch.contiguous_format) for part in parts]
        return copies if isinstance(found, list | tuple) else copies[0]

    return reference


def written(x: Any, src: Any, *where: Any) -> Any:
    """PyTorch's as_strided_scatter, but for its gradient, which is that of another part of the input."""
    x.as_strided(*where).copy_(src)
    return x


COPIES: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("alias", normal(3, 4), ()),
    ("as_strided", normal(3, 4), ((2, 2), (4, 1), 1)),
    ("expand", normal(3, 1), ((3, 4),)),
    ("narrow", normal(3, 4), (1, 1, 2)),
    ("permute", normal(2, 3, 4), ((2, 0, 1),)),
    ("select", normal(3, 4), (0, -1)),
    ("slice", normal(3, 4), (1, 1, 3)),
    ("split", normal(5, 2), (2,)),
    ("split_with_sizes", normal(5, 2), ([1, 4],)),
    ("squeeze", normal(3, 1), (1,)),
    ("t", normal(3, 4), ()),
    ("transpose", normal(3, 4), (0, 1)),
    ("unbind", normal(3, 4), (1,)),
    ("unfold", normal(3, 6), (1, 2, 2)),
    ("unsqueeze", normal(3, 4), (0,)),
    ("view", normal(3, 4), ((4, 3),)),
    ("view_as_complex", normal(3, 2), ()),
]

SAMPLES = [
    *[Sample(f"{name}_copy", x, *args, complex=name != "view_as_complex", reference=cloned(name))
      for name, x, args in COPIES],
    Sample("view_as_real_copy", normal(3), complex_only=True, reference=cloned("view_as_real")),
    Sample("detach", normal(3).without_gradient()),
    Sample("detach_copy", normal(3).without_gradient(), reference=lambda torch, x: x.detach().clone()),
    Sample("as_strided_scatter", normal(3, 4), normal(2, 2), (2, 2), (4, 1), 1,
           reference=lambda torch, x, s, *where: written(x.clone(), s, *where)),
]  # fmt: skip
