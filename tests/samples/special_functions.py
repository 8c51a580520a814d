"""The normal distribution, zeta and gamma, Bessel functions, orthogonal polynomials."""

from __future__ import annotations

import math
from typing import Any

from tests.samples import Array, Sample, constant, fraction, integers, normal, positive, unit

ENDS = [math.inf, -math.inf, math.nan]


def by_name(name: str) -> Any:
    """PyTorch's function of the same name, in torch.special."""
    return lambda torch, *args: getattr(torch.special, name)(*args)


def rows(name: str, *arrays: Array, **options: Any) -> list[Sample]:
    """A row for each array; `reference=False` where PyTorch has no derivative (test_special.py compares values)."""
    reference = options.pop("reference", by_name(name))
    return [Sample(f"special_{name}", a, reference=reference, note=str(k), **options) for k, a in enumerate(arrays)]


BESSEL = ["bessel_j0", "bessel_j1", "bessel_y0", "bessel_y1", "modified_bessel_k0", "modified_bessel_k1",
          "scaled_modified_bessel_k0", "scaled_modified_bessel_k1", "modified_bessel_i0", "modified_bessel_i1",
          "spherical_bessel_j0", "airy_ai"]  # fmt: skip
CHEBYSHEV = [f"chebyshev_polynomial_{kind}" for kind in "tuvw"]
POLYNOMIALS = [*CHEBYSHEV, *[f"shifted_{name}" for name in CHEBYSHEV], "hermite_polynomial_h", "hermite_polynomial_he",
               "laguerre_polynomial_l", "legendre_polynomial_p"]  # fmt: skip

SAMPLES = [
    *rows("erfcx", normal(3, 4), normal(), normal(0, 3), constant([-5.0, -0.3, 0.2, 0.6, 3.9, 4.1, 30.0])),
    *rows("erfcx", constant([-40.0, *ENDS]), kink=True, gradgrad=False),
    *rows("ndtr", normal(3, 4), normal(), integers(4)),
    *rows("log_ndtr", normal(3, 4), normal(), constant([-40.0, -3.0, -0.9, 0.0, 5.0])),
    *rows("ndtri", fraction(3, 4), fraction(), constant([0.07, 0.08, 0.5, 0.92, 0.93])),
    *rows("ndtri", constant([1e-300, 1e-12]), constant([0.0, 1.0, -1.0, 2.0, *ENDS]), kink=True, gradgrad=False),
    *rows("entr", positive(3, 4), positive(), constant([0.1, 1.0, 30.0])),
    *rows("entr", constant([0.0, *ENDS]), kink=True, gradgrad=False),
    Sample("special_xlog1py", normal(3, 4), positive(3, 4), reference=by_name("xlog1py")),
    Sample("special_xlog1py", normal(3, 1), positive(4), reference=by_name("xlog1py"), note="broadcast"),
    Sample("special_xlog1py", normal(), positive(2), reference=by_name("xlog1py"), note="0-d"),
    Sample("special_zeta", integers(4, low=2, high=6), positive(4), reference=by_name("zeta")),
    Sample("special_zeta", integers(3, low=2, high=6), positive(2, 1), reference=by_name("zeta"), note="broadcast"),
    *rows("gamma", positive(3, 4), constant([-3.3, -0.4, 0.1, 5.0, 20.0]), reference=False),
    Sample("special_betaln", positive(3, 4), positive(4), reference=False),
    Sample("special_beta", positive(3, 1), positive(4), reference=False),
    Sample("mvlgamma", positive(3, 4), 1),
    Sample("mvlgamma", constant([2.5, 3.0, 10.0]), 4, note="4"),
    Sample("special_multigammaln", constant([2.5, 3.0, 10.0]), 3, reference=by_name("multigammaln")),
    *[row for name in BESSEL for row in rows(name, positive(3, 4), positive(), reference=False)],
    *[row for name in ("bessel_j0", "bessel_j1", "spherical_bessel_j0", "airy_ai")
      for row in rows(name, normal(5), constant([-20.0, -3.0, 0.5, 30.0]), reference=False)],
    Sample("_airy_ai_slope", normal(4), reference=False),
    *[Sample(f"special_{name}", v, positive(3, 4), reference=False, note=str(v))
      for name in ("jv", "yv", "iv", "kv") for v in (0, 2.5)],
    *[Sample(f"special_{name}", unit(3, 4), 5, reference=False) for name in POLYNOMIALS],
    *[Sample(f"special_{name}", normal(3, 1), integers(4, low=-1, high=6), reference=False, note="degrees")
      for name in POLYNOMIALS],
]  # fmt: skip
