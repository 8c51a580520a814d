"""The search of the built site, in a browser: what people ask comes up among the first three results.

`make docs-search` builds the site and runs these.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.instrument.browser import Browser, needs_browser

SITE = os.environ.get("UNDERTOW_SITE")

pytestmark = [needs_browser, pytest.mark.skipif(SITE is None, reason="UNDERTOW_SITE is not the folder of a built site")]

#: names: the entry of each is its own, behind `undertow.`, unless another is said
NAMES = """
    torch.nn.functional.gelu torch.autograd.grad torch.autograd.backward torch.autograd.Function torch.no_grad
    torch.enable_grad torch.inference_mode torch.set_grad_enabled torch.autograd.detect_anomaly
    torch.autograd.set_detect_anomaly torch.autograd.gradcheck torch.autograd.gradgradcheck
    torch.autograd.functional.jacobian torch.autograd.functional.hessian torch.autograd.forward_ad.make_dual
    torch.autograd.graph.saved_tensors_hooks torch.autograd.graph.save_on_cpu torch.autograd.graph.Node
    torch.autograd.function.once_differentiable torch.func.vmap torch.func.jacrev torch.func.functional_call
    torch.Tensor.backward torch.Tensor.expand torch.Tensor.masked_fill_ torch.Tensor.data_ptr torch.Tensor.numpy
    torch.Tensor.grad_fn torch.Tensor.is_leaf torch.Tensor.register_hook torch.Tensor.retain_grad
    torch.Tensor.register_post_accumulate_grad_hook torch.Tensor.share_memory_ torch.Tensor.storage torch.Tensor.to
    torch.nn.Linear torch.nn.LSTM torch.nn.Conv2d torch.nn.MultiheadAttention torch.nn.TransformerEncoderLayer
    torch.nn.Dropout torch.nn.BatchNorm1d torch.nn.Sequential torch.nn.ModuleList torch.nn.CrossEntropyLoss
    torch.nn.Module.register_buffer torch.nn.Module.register_forward_hook torch.nn.Module.register_full_backward_hook
    torch.nn.Module.state_dict torch.nn.Module.load_state_dict torch.nn.functional.cross_entropy
    torch.nn.functional.scaled_dot_product_attention torch.nn.utils.clip_grad_norm_ torch.nn.init.kaiming_normal_
    torch.nn.parallel.DistributedDataParallel torch.optim.AdamW torch.optim.SGD torch.optim.lr_scheduler.OneCycleLR
    torch.optim.lr_scheduler.StepLR torch.optim.Optimizer.zero_grad torch.utils.checkpoint.checkpoint torch.save
    torch.load torch.compile torch.amp.autocast torch.amp.GradScaler torch.cuda.is_available torch.cuda.Stream
    torch.set_num_threads torch.manual_seed torch.random.fork_rng torch.use_deterministic_algorithms
    torch.set_default_dtype torch.profiler.profile torch.utils.tensorboard.SummaryWriter torch.from_numpy torch.einsum
    torch.linalg.svd torch.fft.rfft torch.special.erfcx torch.as_strided torch.distributions.Normal
    torch.distributed.init_process_group torch.distributed.all_reduce torch.distributed.rpc.rpc_sync
    torch.sparse_coo_tensor torch.bernoulli torch.where torch.scatter_add torch.topk torch.cat
""".split()

#: names alone, arguments, attributes, phrases, the beginnings of errors -> the page, or a place on it
ASKED = {
    "retain_graph": "autograd.backward", "create_graph": "autograd.grad", "allow_unused": "autograd.grad",
    "num_workers": "data.DataLoader", "weight_decay": "optim.SGD", "strict": "nn.Module.load_state_dict",
    "map_location": "load", "weights_only": "load", "use_reentrant": "utils.checkpoint.checkpoint",
    "set_to_none": "optim.Optimizer.zero_grad", "find_unused_parameters": "nn.parallel.DistributedDataParallel",
    "label_smoothing": "cross_entropy", "ignore_index": "cross_entropy", "pin_memory": "Tensor.pin_memory",
    "grad_fn": "Tensor.grad_fn", "clip_grad_norm_": "nn.utils.clip_grad_norm_", "zero_grad": "nn.Module.zero_grad",
    "F.gelu": "nn.functional.gelu", "ctx.needs_input_grad": "custom-functions",
    "ctx.saved_tensors": "autograd.function.FunctionCtx.saved_tensors",
    "save_for_backward": "custom-functions", "setup_context": "custom-functions", "next_functions": "hooks",
    "_version": "inplace", "__torch_function__": "op-modes", "TorchDispatchMode": "op-modes", "torch.fx": "libraries",
    "torch.jit.script": "from-pytorch", "torchvision": "libraries", "quantization": "from-pytorch",
    "functorch": "derivatives", "make_functional": "derivatives", "Wirtinger": "complex", "hogwild": "examples/hogwild",
    "in-place operation error": "inplace", "dataloader workers": "data", "anomaly mode": "hooks#nan-anomaly-mode",
    "per-sample gradients": "derivatives#per-sample-gradients", "hessian vector product": "derivatives",
    "second derivative": "derivatives", "gradient of complex function": "complex", "freeze layers": "how-do-i",
    "gradient accumulation": "how-do-i", "early stopping": "how-do-i", "resume training": "how-do-i",
    "gradient clipping": "how-do-i", "save model": "files", "memory leak": "saved-tensors", "nan gradient": "hooks",
    "learning rate schedule": "optim", "sparse gradients": "sparse", "tensor subclass": "Tensor.as_subclass",
    "non-deterministic": "how-do-i", "out of memory": "seeing", "reduce memory usage": "checkpoint",
    "validation accuracy": "how-do-i", "csv table": "how-do-i", "make it faster": "how-do-i", "install GPU": "install",
    "multiple GPUs": "cuda", "curve fitting": "examples/scipy_fit", "scipy minimize": "numpy",
    "Trying to backward through the graph a second time":
        "troubleshooting#trying-to-backward-through-the-graph-a-second-time",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x100 and 784x10)":
        "troubleshooting#mat1-and-mat2-shapes-cannot-be-multiplied",
    "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!":
        "troubleshooting#expected-all-tensors-to-be-on-the-same-device",
    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0":
        "troubleshooting#the-size-of-tensor-a-must-match-the-size-of-tensor-b",
    "view size is not compatible with input tensor's size and stride":
        "troubleshooting#view-size-is-not-compatible-with-input-tensor-s-size-and-stride",
    "Can't call numpy() on Tensor that requires grad":
        "troubleshooting#can-t-call-numpy-on-tensor-that-requires-grad",
    "modified by an inplace operation":
        "troubleshooting#one-of-the-variables-needed-for-gradient-computation-has-been-modified-by-an-inplace-operation",
    "does not require grad and does not have a grad_fn":
        "troubleshooting#element-0-of-tensors-does-not-require-grad-and-does-not-have-a-grad-fn",
}  # fmt: skip

READY = "document.readyState === 'complete' && typeof Search !== 'undefined' && Search.hasIndex()"
FOUND = "document.querySelectorAll('ul.search > li').length > 2 || Search._pulse_status < 0"
PLACES = """[...document.querySelectorAll('ul.search > li > a')].slice(0, 3).map(
    (link) => link.getAttribute('href').replace(/\\.html(\\?[^#]*)?/, ''))"""


@pytest.fixture(scope="module")
def places() -> Iterator[Callable[[str], list[str]]]:
    """Where the first three results lead."""
    folder = Path(str(SITE)).resolve()
    with Browser() as browser:
        page = browser.open(folder / "search.html")

        def ask(words: str) -> list[str]:
            page.call("Page.navigate", url=f"{(folder / 'search.html').as_uri()}?q={quote(words)}")
            page.wait_for(f"location.search.length > 1 && {READY}")
            page.wait_for(FOUND)
            found = page.value(PLACES)
            assert page.errors() == []
            return list(found)

        yield ask


def test_there_are_enough() -> None:
    assert len(NAMES) + len(ASKED) > 150


def test_names_find_their_entries(places: Callable[[str], list[str]]) -> None:
    lost = {}
    for name in NAMES:
        found = places(name)
        if not any([place.endswith(f"#{name.replace('torch.', 'undertow.')}") for place in found]):
            lost[name] = found
    assert lost == {}


def test_what_people_ask_is_found(places: Callable[[str], list[str]]) -> None:
    lost = {}
    for asked, answer in ASKED.items():
        found = places(asked)
        if not any([place.endswith(f"#undertow.{answer}") or f"{place}#".startswith(f"{answer}#") for place in found]):
            lost[asked] = found
    assert lost == {}
