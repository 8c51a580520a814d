"""undertow: PyTorch's autograd, rule for rule, on the arrays you already have.

>>> import undertow as ut
>>> x = ut.tensor([1.0, 2.0, 3.0], requires_grad=True)
>>> loss = (x.sin() * x).sum()
>>> loss.backward()
>>> x.grad
tensor([ 1.3818,  0.0770, -2.8289])
"""

from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

from undertow import autograd as autograd
from undertow import methods as _methods  # attaches the operators to Tensor
from undertow import ops as _ops
from undertow import version as version
from undertow.autograd.anomaly import is_anomaly_check_nan_enabled, is_anomaly_enabled
from undertow.autograd.interceptors.autocast import autocast, get_autocast_dtype, is_autocast_enabled
from undertow.autograd.tensor_attributes import is_inference
from undertow.backend import Device as device
from undertow.backend.allocator import choose_from_environment as _choose_allocator
from undertow.backend.allocator import get_cpu_allocator, set_cpu_allocator
from undertow.backend.dtypes import bfloat16 as _bfloat16
from undertow.backend.dtypes import (
    bool_,
    can_cast,
    complex64,
    complex128,
    dtype,
    float16,
    float32,
    float64,
    get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)  # fmt: skip
from undertow.backend.limits import finfo, iinfo
from undertow.engine.deterministic_sums import are_deterministic_algorithms_enabled, use_deterministic_algorithms
from undertow.errors import is_warn_always_enabled, set_warn_always
from undertow.interop.dlpack import from_dlpack
from undertow.lazy_names import loaded_when_used as _loaded_when_used
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
from undertow.ops.declare import out_argument as _out_variants
from undertow.ops.declare import return_types
from undertow.ops.inplace import foreach as _foreach
from undertow.ops.namespaces import fft as fft
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
from undertow.tensor.display import get_printoptions, printoptions, set_printoptions
from undertow.tensor.facts import (  # fmt: skip
    channels_last,
    channels_last_3d,
    contiguous_format,
    get_device,
    is_complex,
    is_floating_point,
    is_same_size,
    is_signed,
    is_tensor,
    memory_format,
    numel,
    preserve_format,
)
from undertow.tensor.facts import to_bool as is_nonzero
from undertow.tensor.layouts import layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from undertow.torch_names import module_aliases as _module_aliases
from undertow.version import __version__

if TYPE_CHECKING:
    from undertow import amp as amp
    from undertow import cuda as cuda
    from undertow import data as data
    from undertow import distributed as distributed
    from undertow import distributions as distributions
    from undertow import func as func
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
    from undertow.torch_names.top_level import accelerator as accelerator
    from undertow.torch_names.top_level import backends as backends
    from undertow.torch_names.top_level import random as random
    from undertow.torch_names.top_level import utils as utils

    def __getattr__(name: str) -> Any: ...  # the operations, which are filled in below

else:
    # the folder of modules that only programs written for PyTorch ask for, found like any other by Python's own import
    __path__.append(f"{__path__[0]}/torch_names/top_level")
    _lazily, __dir__ = _loaded_when_used(
        __name__,
        modules="amp cuda data distributed distributions func masked nn optim testing "
        "accelerator backends random utils",
        names={
            "undertow.amp": "GradScaler",
            "undertow.autograd.interceptors.op_mode": "Operation OpMode",
            "undertow.autograd.vmap": "vmap",
            "undertow.interop.files": "load save",
        },
        others={"sim": "undertow.backend.simulated"},
    )

    def __getattr__(name: str) -> Any:
        if name == "bfloat16":
            try:
                return _bfloat16()
            except ImportError as error:
                raise AttributeError(str(error)) from None
        return _lazily(name)


_module_aliases.register(__name__)
half, double, short, long, cfloat, cdouble = float16, float64, int16, int64, complex64, complex128
newaxis = None

_choose_allocator()

#: the operations that are functions of the package; each is also the Tensor method of its name where PyTorch has one
OPERATIONS = """
_convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo _unique _unique2 abs absolute acos acosh
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
add addbmm addcdiv addcmul addmm addmv addr adjoint affine_grid alias_copy all allclose amax amin aminmax angle any
arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere as_strided as_strided_copy
as_strided_scatter as_tensor asarray asin asinh atan atan2 atanh atleast_1d atleast_2d atleast_3d avg_pool1d avg_pool2d
avg_pool3d baddbmm bartlett_window batch_norm bernoulli bilinear binary_cross_entropy binary_cross_entropy_with_logits
bincount binomial bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor blackman_window
block_diag bmm broadcast_tensors broadcast_to bucketize cartesian_prod cat cdist ceil celu chain_matmul channel_shuffle
cholesky cholesky_inverse cholesky_solve chunk clamp clamp_max clamp_min clip clone column_stack combinations complex
concat concatenate conj conj_physical constant_pad_nd conv1d conv2d conv3d conv_transpose1d conv_transpose2d
conv_transpose3d convolution copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity count_nonzero cov cross
cross_entropy cummax cummin cumprod cumsum cumulative_trapezoid deg2rad det detach detach_copy diag diag_embed diagflat
diagonal diagonal_copy diagonal_scatter diff digamma dist div divide dot dropout dsplit dstack einsum elu embedding
embedding_bag empty empty_like empty_strided eq equal erf erfc erfinv exp exp2 expand_copy expand_dims expit expm1 eye
fill fix flatten flip fliplr flipud float_power floor floor_divide fmax fmin fmod frac frexp frobenius_norm from_numpy
frombuffer full full_like gather gaussian_nll_loss gcd ge gelu geqrf ger glu gradient greater greater_equal grid_sample
group_norm gt hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh heaviside hinge_embedding_loss histc
histogram histogramdd hsplit hstack huber_loss hypot i0 igamma igammac imag index_add index_copy index_fill index_put
index_reduce index_select inner instance_norm interpolate inverse is_conj is_neg isclose isfinite isin isinf isnan
isneginf isposinf isreal istft kaiser_window kl_div kron kthvalue l1_loss layer_norm lcm ldexp le leaky_relu lerp less
less_equal lgamma linear linspace lobpcg log log10 log1p log2 log_softmax logaddexp logaddexp2 logcumsumexp logdet
logical_and logical_not logical_or logical_xor logit logsigmoid logspace logsumexp lp_pool1d lp_pool2d lp_pool3d lt lu
lu_solve lu_unpack margin_ranking_loss masked_fill masked_scatter masked_select matmul matrix_exp matrix_power max
max_pool1d max_pool2d max_pool3d maximum mean median meshgrid min minimum mish mm mode moveaxis movedim mse_loss msort
mul multilabel_soft_margin_loss multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow
narrow_copy ne neg negative nextafter nll_loss nonzero nonzero_static norm normal normalize not_equal nuclear_norm
one_hot ones ones_like orgqr ormqr outer pad pairwise_distance pca_lowrank pdist percentile permute permute_copy
pinverse pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar polygamma positive pow prelu prod put qr quantile
rad2deg rand rand_like randint randint_like randn randn_like randperm ravel real reciprocal relu relu6 remainder renorm
repeat_interleave reshape resolve_conj resolve_neg rms_norm roll rot90 round row_stack rsqrt rsub scalar_tensor scatter
scatter_add scatter_reduce searchsorted segment_reduce select select_copy select_scatter selu sgn sigmoid sign signbit
silu sin sinc sinh slice_copy slice_scatter slogdet smooth_l1_loss soft_margin_loss softmax softmin softplus softshrink
softsign sort sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor
sparse_csr_tensor split split_copy split_with_sizes split_with_sizes_copy spmm sqrt square squeeze squeeze_copy stack
std std_mean stft sub subtract sum svd svd_lowrank swapaxes swapdims t t_copy take take_along_dim tan tanh tanhshrink
tensor tensor_split tensordot threshold tile topk trace transpose transpose_copy trapezoid trapz triangular_solve tril
tril_indices triplet_margin_loss triu triu_indices true_divide trunc unbind unbind_copy unflatten unfold unfold_copy
unique unique_consecutive unravel_index unsafe_chunk unsafe_split unsafe_split_with_sizes unsqueeze unsqueeze_copy
vander var var_mean vdot view_as_complex view_as_complex_copy view_as_real view_as_real_copy view_copy vsplit vstack
where xlogy zeros zeros_like
""".split()

#: operations that are functions of the package in their in-place form, too
IN_PLACE = """
abs_ acos_ acosh_ addmv_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_ asinh_ atan_ atanh_ ceil_
celu_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ dropout_ erf_ erfc_ exp2_ exp_
expm1_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log10_ log1p_ log2_ log_ logit_ nan_to_num_ neg_
negative_ rad2deg_ reciprocal_ relu_ resize_as_ round_ rsqrt_ selu_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_ tan_ tanh_
threshold_ trunc_ xlogy_ zero_
""".split()

globals().update({name: _out_variants.public_function(name) for name in OPERATIONS})
globals().update({name: _methods.in_place_function(name) for name in IN_PLACE})
globals().update(_foreach.table())
bool, int, float = bool_, int32, float32  # the last lines of this file, because they hide Python's own
