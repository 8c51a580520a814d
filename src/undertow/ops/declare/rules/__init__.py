"""Classes of rules, for operations whose jvp or batching rule follows from what they are.

apply_jvp.py and apply_batching.py evaluate an operation's declared rules. Batching rules are written with what
batch_in_front.py and shifted_dims.py have.
"""

from __future__ import annotations

from enum import Enum


class Rule(Enum):
    """ELEMENTWISE  jvp: the vjp rule, conjugated on both sides; batching: align the batch dimension in front
    LINEAR       jvp: forward applied to the tangents (linear in all inputs together)
    BILINEAR     jvp: forward with one tangent in the place of its input, summed over the inputs
    REDUCTION    batching: shift `dim` by one
    LOOP         batching: one call per example, results stacked
    """

    ELEMENTWISE = "elementwise"
    LINEAR = "linear"
    BILINEAR = "bilinear"
    REDUCTION = "reduction"
    LOOP = "loop"


ELEMENTWISE = Rule.ELEMENTWISE
LINEAR = Rule.LINEAR
BILINEAR = Rule.BILINEAR
REDUCTION = Rule.REDUCTION
LOOP = Rule.LOOP
