"""What lists and dictionaries of modules and parameters can do, in both libraries."""

from __future__ import annotations

from collections import OrderedDict
from types import ModuleType

import pytest


def kinds(modules: object) -> list[str]:
    return [type(module).__name__ for module in modules]  # type: ignore[attr-defined]


def test_sequential_again_and_again(L: ModuleType) -> None:
    nn = L.nn
    net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    twice = net * 2
    assert kinds(twice) == ["Linear", "ReLU", "Linear", "ReLU"] and twice[2] is net[0]
    assert kinds(2 * net) == kinds(twice) and len(list(twice.parameters())) == 2
    net *= 3
    assert len(net) == 6 and list(net._modules) == list("012345")
    with pytest.raises(ValueError, match="Non-positive multiplication factor 0"):
        net * 0
    with pytest.raises(TypeError, match=r"unsupported operand type\(s\) for \*"):
        net * 1.5


def test_pairs_that_are_none(L: ModuleType) -> None:
    for container in (L.nn.ModuleDict(), L.nn.ParameterDict()):
        name = type(container).__name__
        with pytest.raises(TypeError, match=f"{name} update sequence element #0 should be Iterable; is ?int"):
            container.update([3])
        with pytest.raises(ValueError, match=f"{name} update sequence element #0 has length 1; 2 is required"):
            container.update([("a",)])
        with pytest.raises(TypeError, match="update should be called with an iterable of key/value pairs, but got int"):
            container.update(3)


def test_the_order_of_a_dictionary_of_parameters(L: ModuleType) -> None:
    """A plain dict is taken by its names, anything else as it comes: optimizers number parameters in this order."""
    pairs = [("b", L.ones(1)), ("a", L.ones(2)), ("c", "text")]
    assert list(L.nn.ParameterDict(dict(pairs))) == ["a", "b", "c"]
    for ordered in (pairs, OrderedDict(pairs), L.nn.ParameterDict(pairs)):
        assert list(L.nn.ParameterDict(ordered)) == ["b", "a", "c"]
        assert list(L.nn.ParameterDict(ordered).state_dict()) == ["b", "a"]


def test_methods_of_a_dictionary_of_parameters(L: ModuleType) -> None:
    params = L.nn.ParameterDict([("a", L.ones(1)), ("b", L.ones(2))])
    copied = params.copy()
    name, last = params.popitem()
    assert name == "b" and last is copied["b"] and list(params) == ["a"] and list(copied) == ["a", "b"]
    assert list(reversed(copied)) == ["b", "a"]
    assert list(params.fromkeys(["u", "v"], 3).items()) == [("u", 3), ("v", 3)]
    joined = params | L.nn.ParameterDict({"z": L.ones(3)})
    assert list(joined) == ["a", "z"] and list(params) == ["a"] and joined["a"] is params["a"]
    params |= L.nn.ParameterDict({"y": L.ones(3)})
    assert list(params) == ["a", "y"]
    params.clear()
    with pytest.raises(KeyError):
        params.popitem()


def test_how_parameters_are_shown(L: ModuleType) -> None:
    lines = repr(L.nn.ParameterList([L.ones(2, 3), "text"])).splitlines()
    assert lines[0] == "ParameterList(" and lines[-1] == ")"
    assert lines[1].startswith("    (0): Parameter containing: [") and lines[1].endswith("float32 of size 2x3]")
    assert lines[2] == "    (1): Object of type: str"
    assert ".FloatTensor of size 2x3]" in repr(L.nn.ParameterDict({"a": L.ones(2, 3)}))
    assert repr(L.nn.Buffer(L.ones(1))) == "tensor([1.])"


def test_state_dict_hooks_change_in_place(L: ModuleType) -> None:
    net = L.nn.Linear(1, 1)
    handle = net.register_state_dict_post_hook(lambda module, state, prefix, metadata: state.pop("bias") and None)
    assert list(net.state_dict()) == ["weight"]
    handle.remove()
    net.register_state_dict_post_hook(lambda module, state, prefix, metadata: {})
    with pytest.raises(RuntimeError, match="state_dict post-hook must return None"):
        net.state_dict()


@pytest.mark.parametrize(
    ("name", "base", "expected"),
    [
        ("CELU", "ELU", False),
        ("AvgPool3d", "AvgPool2d", False),
        ("ReLU6", "Hardtanh", True),
        ("ZeroPad2d", "ConstantPad2d", True),
        ("BatchNorm2d", "BatchNorm1d", False),
        ("Conv2d", "Conv1d", False),
    ],
)
def test_who_is_who(L: ModuleType, name: str, base: str, expected: bool) -> None:
    """isinstance decides how networks are initialised, and what is replaced in them."""
    assert issubclass(getattr(L.nn, name), getattr(L.nn, base)) is expected


def test_where_pytorch_keeps_layers(L: ModuleType) -> None:
    modules = L.nn.modules
    assert isinstance(L.nn.BatchNorm2d(1), modules.batchnorm._BatchNorm)
    assert not isinstance(L.nn.LayerNorm(1), modules.batchnorm._BatchNorm)
    assert isinstance(L.nn.ConvTranspose1d(1, 1, 1), modules.conv._ConvNd)
    assert isinstance(L.nn.MSELoss(), modules.loss._Loss) and isinstance(L.nn.Dropout(), modules.dropout._DropoutNd)
    assert modules.utils._pair(3) == (3, 3) and modules.utils._pair((1, 2)) == (1, 2)
    assert modules.linear.Linear is L.nn.Linear and modules.Module is L.nn.Module


def test_the_same_by_import() -> None:
    from undertow.nn.modules.container import Sequential
    from undertow.utils.data.dataloader import default_collate
    from undertow.utils.data.sampler import SubsetRandomSampler

    import undertow as ut

    assert Sequential is ut.nn.Sequential and default_collate is ut.data.default_collate
    assert SubsetRandomSampler is ut.data.SubsetRandomSampler


def test_hooks_on_all_modules(L: ModuleType) -> None:
    seen: list[str] = []
    handle = L.nn.modules.module.register_module_forward_hook(
        lambda module, args, out: seen.append(type(module).__name__)
    )
    L.nn.Sequential(L.nn.Tanh())(L.ones(1))
    handle.remove()
    L.nn.Tanh()(L.ones(1))
    assert seen == ["Tanh", "Sequential"]


def test_a_prefix_comes_off(L: ModuleType) -> None:
    state = L.nn.Sequential(OrderedDict(module=L.nn.Sequential(L.nn.Linear(1, 1)))).state_dict()
    L.nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert list(state) == ["0.weight", "0.bias"] and sorted(state._metadata) == ["", "0"]
    assert str(L.nn.Sequential(L.nn.Linear(1, 1)).load_state_dict(state)) == "<All keys matched successfully>"


def test_modules_without_values(L: ModuleType) -> None:
    net = L.nn.Linear(2, 3)
    weight = net.weight
    assert net.to_empty(device="cpu") is net and net.weight is weight and weight.requires_grad
    assert L.nn.utils.skip_init(L.nn.Linear, 2, 3).weight.shape == (3, 2)
    with pytest.raises(RuntimeError, match="must support a 'device' arg"):
        L.nn.utils.skip_init(L.nn.ReLU)


@pytest.mark.parametrize(("dims", "options"), [(1, {}), (2, {"stride": 2, "padding": 1}), (3, {"groups": 2})])
def test_gradients_of_convolutions(L: ModuleType, dims: int, options: dict[str, int]) -> None:
    x = L.randn(2, 4, *[5] * dims, requires_grad=True)
    w = L.randn(6, 4 // options.get("groups", 1), *[3] * dims, requires_grad=True)
    out = getattr(L.nn.functional, f"conv{dims}d")(x, w, **options)
    g = L.randn(*out.shape)
    of_x, of_w = L.autograd.grad(out, (x, w), g)
    grad = L.nn.grad
    assert L.allclose(getattr(grad, f"conv{dims}d_input")(x.shape, w, g, **options), of_x, atol=1e-5)
    assert L.allclose(getattr(grad, f"conv{dims}d_weight")(x, w.shape, g, **options), of_w, atol=1e-4)


def test_convolution_with_time_first(torch: ModuleType) -> None:
    import undertow as ut

    x, w, b = torch.randn(5, 2, 3), torch.randn(2, 3, 4), torch.randn(4)
    ours = ut.nn.functional.conv_tbc(*(ut.from_numpy(t.numpy()) for t in (x, w, b)), 1)
    assert torch.allclose(torch.from_numpy(ours.numpy()), torch.nn.functional.conv_tbc(x, w, b, 1), atol=1e-5)


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"])
def test_losses_of_sizes_that_do_not_fit(L: ModuleType, name: str) -> None:
    with (
        pytest.warns(UserWarning, match="Using a target size") as seen,
        pytest.raises(RuntimeError, match=r"The size of tensor a \(2\) must match the size of tensor b \(3\)"),
    ):
        getattr(L.nn.functional, name)(L.ones(2), L.ones(3))
    if L.__name__ == "undertow":
        assert seen[0].filename == __file__


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("nn.quantized", "cannot be quantized"),
        ("nn.CrossMapLRN2d", "use LocalResponseNorm"),
        ("nn.parallel.DistributedDataParallelCPU", "use DistributedDataParallel"),
    ],
)
def test_what_is_not_here_says_what_is(path: str, advice: str) -> None:
    import undertow as ut

    *modules, name = path.split(".")
    module = ut
    for part in modules:
        module = getattr(module, part)
    with pytest.raises(AttributeError, match=f"has no attribute '{name}': .*{advice}"):
        getattr(module, name)


@pytest.mark.parametrize(("name", "advice"), [("ipu", "leave it out"), ("mtia", "leave it out")])
def test_methods_that_are_not_here(name: str, advice: str) -> None:
    import undertow as ut

    net = ut.nn.Linear(1, 1)
    assert not hasattr(net, name)
    with pytest.raises(AttributeError, match=f"'Linear' object has no attribute '{name}': .*{advice}"):
        getattr(net, name)
