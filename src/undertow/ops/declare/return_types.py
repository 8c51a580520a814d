"""What operations with several named results return: tuples with named fields, as in torch.return_types."""

from __future__ import annotations

from operator import itemgetter
from typing import Any

from undertow.backend.public_dtypes import PREFIX


class ReturnType(tuple[Any, ...]):
    """A tuple made from one iterable, as PyTorch's are; subclasses name the fields."""

    __slots__ = ()
    fields: tuple[str, ...] = ()

    def __repr__(self) -> str:
        fields = ",\n".join(f"{name}={value!r}" for name, value in zip(self.fields, self, strict=True))
        return f"{PREFIX[0]}.return_types.{type(self).__name__}(\n{fields})"


def define(name: str, *fields: str) -> type[ReturnType]:
    members: dict[str, Any] = {"__slots__": (), "__module__": __name__, "fields": fields}
    members["__match_args__"] = fields
    members.update(n_fields=len(fields), n_sequence_fields=len(fields), n_unnamed_fields=0)
    members.update({field: property(itemgetter(k)) for k, field in enumerate(fields)})
    return type(name, (ReturnType,), members)


max = define("max", "values", "indices")
min = define("min", "values", "indices")
median = define("median", "values", "indices")
nanmedian = define("nanmedian", "values", "indices")
mode = define("mode", "values", "indices")
cummax = define("cummax", "values", "indices")
cummin = define("cummin", "values", "indices")
sort = define("sort", "values", "indices")
topk = define("topk", "values", "indices")
kthvalue = define("kthvalue", "values", "indices")
aminmax = define("aminmax", "min", "max")
slogdet = define("slogdet", "sign", "logabsdet")
linalg_slogdet = define("linalg_slogdet", "sign", "logabsdet")
qr = define("qr", "Q", "R")
linalg_qr = define("linalg_qr", "Q", "R")
linalg_svd = define("linalg_svd", "U", "S", "Vh")
svd = define("svd", "U", "S", "V")
linalg_eigh = define("linalg_eigh", "eigenvalues", "eigenvectors")
linalg_eig = define("linalg_eig", "eigenvalues", "eigenvectors")
linalg_lstsq = define("linalg_lstsq", "solution", "residuals", "rank", "singular_values")
triangular_solve = define("triangular_solve", "solution", "cloned_coefficient")
frexp = define("frexp", "mantissa", "exponent")
histogram = define("histogram", "hist", "bin_edges")
histogramdd = define("histogramdd", "hist", "bin_edges")
geqrf = define("geqrf", "a", "tau")
linalg_ldl_factor = define("linalg_ldl_factor", "LD", "pivots")
linalg_ldl_factor_ex = define("linalg_ldl_factor_ex", "LD", "pivots", "info")
linalg_lu = define("linalg_lu", "P", "L", "U")
linalg_lu_factor = define("linalg_lu_factor", "LU", "pivots")
lu_unpack = define("lu_unpack", "P", "L", "U")
linalg_inv_ex = define("linalg_inv_ex", "inverse", "info")
linalg_solve_ex = define("linalg_solve_ex", "result", "info")
linalg_cholesky_ex = define("linalg_cholesky_ex", "L", "info")
linalg_lu_factor_ex = define("linalg_lu_factor_ex", "LU", "pivots", "info")
