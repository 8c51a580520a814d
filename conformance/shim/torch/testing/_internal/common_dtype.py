import numpy as np


def floating_types_and(*more: object) -> tuple[object, ...]:
    return (np.dtype("float32"), np.dtype("float64"), *more)
