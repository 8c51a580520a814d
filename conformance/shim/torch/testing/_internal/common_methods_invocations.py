import undertow


def mask_not_all_zeros(shape: tuple[int, ...]) -> "undertow.Tensor":
    """A random boolean mask with at least one element set."""
    if not shape:
        raise AssertionError("a mask needs at least one dimension")
    while True:
        mask = undertow.randn(shape).gt(0)
        if mask.sum() > 0:
            return mask
