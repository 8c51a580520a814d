"""undertow: PyTorch's autograd, rule for rule, on the arrays you already have.

>>> import undertow as ut
>>> x = ut.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> loss = (x.sin() * x).sum()
>>> loss.backward()
>>> x.grad
tensor([ 1.3818,  0.0770, -2.8289])
"""

from math import e, inf, nan, pi
from os import environ as _environ
from sys import modules as _modules
from typing import TYPE_CHECKING, Any

from undertow.lazy_names import loaded_when_used as _loaded_when_used
from undertow.lazy_names import without_collecting as _without_collecting

with _without_collecting():
    from undertow import autograd as autograd
    from undertow import methods as _methods  # attaches the operators to Tensor
    from undertow import ops as _ops

from undertow import version as version
from undertow.autograd.anomaly import is_anomaly_check_nan_enabled, is_anomaly_enabled
from undertow.autograd.interceptors.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from undertow.autograd.tensor_attributes import is_inference
from undertow.backend import Device as device
from undertow.backend import dtypes as _dtypes
from undertow.backend.allocator import choose_from_environment as _choose_allocator
from undertow.backend.allocator import empty_cache, get_cpu_allocator, memory_stats, set_cpu_allocator
from undertow.backend.dtypes import can_cast, dtype, get_default_dtype, set_default_dtype
from undertow.backend.dtypes import common_type as promote_types
from undertow.backend.limits import finfo, iinfo
from undertow.engine.deterministic_sums import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from undertow.errors import is_warn_always_enabled, set_warn_always
from undertow.interop.dlpack import from_dlpack
from undertow.modes import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)  # fmt: skip
from undertow.ops.arguments.operands import result_type
from undertow.ops.arguments.sizes import common_shape as broadcast_shapes
from undertow.ops.create.typed_tensors import (
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)
from undertow.ops.declare import names_with as _names_with
from undertow.ops.declare import return_types
from undertow.ops.inplace import out_argument as _out_argument
from undertow.ops.inplace.resize_and_set import resize_as_
from undertow.ops.namespaces import fft as fft
from undertow.ops.namespaces import foreach as _foreach
from undertow.ops.namespaces import functional as functional
from undertow.ops.namespaces import linalg as linalg
from undertow.ops.namespaces import sparse as sparse
from undertow.ops.namespaces import special as special
from undertow.ops.random.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from undertow.settings import (
    get_default_device,
    get_float32_matmul_precision,
    get_num_threads,
    set_default_device,
    set_default_tensor_type,
    set_float32_matmul_precision,
    set_num_threads,
)
from undertow.tensor import Size, Tensor
from undertow.tensor import torch_function as _torch_function
from undertow.tensor.conversions import to_bool as is_nonzero
from undertow.tensor.display import get_printoptions, printoptions, set_printoptions
from undertow.tensor.facts import get_device, is_complex, is_floating_point, is_same_size, is_signed, is_tensor, numel
from undertow.tensor.layouts import jagged, layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from undertow.tensor.memory_formats import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    memory_format,
    preserve_format,
)
from undertow.torch_names import module_aliases as _module_aliases
from undertow.version import __version__

if TYPE_CHECKING:
    from undertow import amp as amp
    from undertow import cuda as cuda
    from undertow import data as data
    from undertow import distributed as distributed
    from undertow import distributions as distributions
    from undertow import func as func
    from undertow import instrument as instrument
    from undertow import masked as masked
    from undertow import nn as nn
    from undertow import optim as optim
    from undertow import testing as testing
    from undertow.amp import GradScaler as GradScaler
    from undertow.autograd.interceptors.op_mode import Operation as Operation
    from undertow.autograd.interceptors.op_mode import OpMode as OpMode
    from undertow.autograd.vmap import vmap as vmap
    from undertow.backend import simulated as sim
    from undertow.interop.files import load as load
    from undertow.interop.files import save as save
    from undertow.stand_in.finder import as_torch as as_torch
    from undertow.torch_names.top_level import accelerator as accelerator
    from undertow.torch_names.top_level import backends as backends
    from undertow.torch_names.top_level import profiler as profiler
    from undertow.torch_names.top_level import random as random
    from undertow.torch_names.top_level import utils as utils

    def __getattr__(name: str) -> Any: ...  # the operations, which are filled in below

else:
    # the folder of modules that only programs written for PyTorch ask for, found like any other by Python's own import
    __path__.append(f"{__path__[0]}/torch_names/top_level")
    _lazily, __dir__ = _loaded_when_used(
        __name__,
        modules="amp cuda data distributed distributions func instrument masked nn optim testing "
        "accelerator backends compiler cpu futures fx hub jit library mps mtia multiprocessing overrides profiler "
        "quasirandom random serialization signal storage types utils xpu",
        names={
            "undertow.amp": "GradScaler",
            "undertow.autograd.interceptors.op_mode": "Operation OpMode",
            "undertow.autograd.vmap": "vmap",
            "undertow.futures": "Future",
            "undertow.interop.dlpack": "to_dlpack",
            "undertow.interop.files": "load save",
            "undertow.nn.rnn.functional": ("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell"),
            "undertow.stand_in.finder": "as_torch",
            "undertow.torch_names.layer_functions": (
                "alpha_dropout alpha_dropout_ feature_alpha_dropout feature_alpha_dropout_ feature_dropout "
                "feature_dropout_ rrelu rrelu_ ctc_loss grid_sampler grid_sampler_2d "
                "grid_sampler_3d empty_permuted norm_except_dim set_anomaly_enabled is_distributed is_vulkan_available "
                "has_lapack has_spectral has_mkl has_openmp"
            ),
            "undertow.torch_names.old_functions": "range",
            "undertow.torch_names.functions": (
                "complex32 chalf qint8 quint8 qint32 quint4x2 quint2x4 bits8 float4_e2m1fn_x2 "
                "uint1 uint2 uint3 uint4 uint5 uint6 uint7 int1 int2 int3 int4 int5 int6 int7 "
                "compile SymInt SymFloat SymBool UntypedStorage TypedStorage StorageBase OutOfMemoryError "
                "AcceleratorError Stream Event typename is_storage sym_int sym_float sym_max sym_min sym_not sym_ite "
                "sym_sum sym_sqrt get_autocast_cpu_dtype get_autocast_gpu_dtype is_autocast_cpu_enabled "
                "is_autocast_cache_enabled clear_autocast_cache is_deterministic_algorithms_warn_only_enabled "
                "get_deterministic_debug_mode set_deterministic_debug_mode get_num_interop_threads "
                "set_num_interop_threads set_flush_denormal compiled_with_cxx11_abi get_device_module cond while_loop "
                "from_file legacy_contiguous_format _check _check_with _check_index _check_value _check_type "
                "_check_not_implemented _check_tensor_all _check_is_size _assert _assert_async _is_functional_tensor "
                "_segment_reduce _shape_as_tensor _has_compatible_shallow_copy_type "
            ),
        },
        others={"sim": "undertow.backend.simulated"},
    )

    def __getattr__(name: str) -> Any:
        if name in _dtypes.FROM_ML_DTYPES:
            try:
                return _dtypes.public(_dtypes.from_ml_dtypes(name))
            except ImportError as error:
                raise AttributeError(str(error)) from None
        return _lazily(name)


_module_aliases.register(__name__)
bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64, float16, float32, float64, complex64, complex128 = [
    _dtypes.public(_numpy_dtype) for _numpy_dtype in _dtypes.ALL
]
half, double, short, long, cfloat, cdouble = float16, float64, int16, int64, complex64, complex128
newaxis = None

_choose_allocator()

# the operations: a declaration says which are functions of the package, and which of these change their tensor, too
_operations = {name: _out_argument.public_function(name) for name in _names_with("function")}
globals().update(_operations)
globals().update({f"{name}_": _methods.in_place_function(f"{name}_") for name in _names_with("in_place_function")})
globals().update(_foreach.table())
_torch_function.join(_operations)
for _namespace in (fft, linalg, special, functional):
    vars(_namespace).update(
        _torch_function.gates(vars(_namespace), but="__getattr__ namespace_function broadcast_shapes")
    )
if "UNDERTOW_DEBUG" in _environ:
    from undertow.instrument.debug_lines import switch_on as _switch_on

    _switch_on(_environ["UNDERTOW_DEBUG"])


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext undertow`: tensors and nodes are shown as tables and pictures; without it, if IPython came first.

    ipython  the running shell, which IPython hands over

    >>> import undertow as ut
    >>> ut.load_ipython_extension(None)  # what %load_ext calls
    """
    from undertow.instrument.notebook import attach

    attach()


if "IPython" in _modules:
    load_ipython_extension(None)
bool, int, float = bool_, int32, float32  # the last lines of this file, because they hide Python's own
