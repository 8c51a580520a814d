"""Module's own rules, each shown for undertow and for PyTorch."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import undertow as ut


def scale_module(L: ModuleType) -> type:
    class Scale(L.nn.Module):
        def __init__(self, size: int = 2) -> None:
            super().__init__()
            self.weight = L.nn.Parameter(L.ones(size))
            self.register_buffer("shift", L.zeros(size))
            self.register_buffer("scratch", L.zeros(1), persistent=False)

        def forward(self, x: Any, factor: float = 1.0) -> Any:
            return x * self.weight * factor + self.shift

    return Scale


def nested(L: ModuleType) -> Any:
    return L.nn.Sequential(L.nn.Linear(2, 3), L.nn.Sequential(L.nn.BatchNorm1d(3), L.nn.ReLU()), L.nn.Linear(3, 1))


# ---- registration


def test_what_is_assigned_is_registered(L: ModuleType) -> None:
    m = scale_module(L)()
    m.child = L.nn.ReLU()
    m.plain = L.ones(2)
    assert [n for n, _ in m.named_parameters()] == ["weight"]
    assert [n for n, _ in m.named_buffers()] == ["shift", "scratch"]
    assert [n for n, _ in m.named_children()] == ["child"]
    assert m.weight is m._parameters["weight"]


def test_a_name_changes_its_kind(L: ModuleType) -> None:
    m = scale_module(L)()
    m.shift = L.nn.Parameter(L.ones(2))
    assert [n for n, _ in m.named_parameters()] == ["weight", "shift"]
    assert [n for n, _ in m.named_buffers()] == ["scratch"]
    m.scratch = None
    assert m.scratch is None and "scratch" in m._buffers
    m.scratch = L.nn.ReLU()
    assert isinstance(m.scratch, L.nn.ReLU) and "scratch" not in m._buffers
    m.scratch = None
    assert m._modules["scratch"] is None


def test_deletion_unregisters(L: ModuleType) -> None:
    m = nested(L)
    del m[1]
    assert [n for n, _ in m.named_children()] == ["0", "1"]
    layer = L.nn.Linear(2, 2)
    del layer.bias
    assert [n for n, _ in layer.named_parameters()] == ["weight"]
    with pytest.raises(AttributeError, match="bias"):
        layer.bias


def test_members_changed_through_their_dictionary_are_attributes(L: ModuleType) -> None:
    m = scale_module(L)()
    other = L.nn.Parameter(L.zeros(2))
    m._parameters["weight"] = other
    assert m.weight is other
    del m._parameters["weight"]
    assert not hasattr(m, "weight")
    m._buffers.update({"late": L.ones(1)})
    assert m.late.item() == 1
    m._buffers.pop("late")
    assert not hasattr(m, "late")


@pytest.mark.parametrize(
    ("action", "error", "words"),
    [
        (lambda L, m: setattr(m, "weight", L.ones(2)), TypeError, "cannot assign .* as parameter 'weight'"),
        (lambda L, m: setattr(m, "shift", 3), TypeError, "cannot assign .* as buffer 'shift'"),
        (lambda L, m: setattr(m, "child", 3), TypeError, "cannot assign .* as child module 'child'"),
        (lambda L, m: setattr(m, "weight", L.nn.ReLU()), TypeError, "cannot assign .* as parameter 'weight'"),
        (lambda L, m: setattr(m, "weight", L.nn.Buffer(L.ones(2))), TypeError, "as parameter 'weight'"),
        (lambda L, m: setattr(m, "child", L.nn.Buffer(L.ones(2))), TypeError, "as child module 'child'"),
        (lambda L, m: m.register_parameter("a.b", None), KeyError, "contain"),
        (lambda L, m: m.register_parameter("", None), KeyError, "be empty string"),
        (lambda L, m: m.register_parameter("forward", None), KeyError, "already exists"),
        (lambda L, m: m.register_buffer("weight", None), KeyError, "already exists"),
        (lambda L, m: m.register_buffer("new", 3), TypeError, "cannot assign .* object to buffer"),
        (lambda L, m: m.register_parameter("new", L.ones(1)), TypeError, "cannot assign .* object to parameter"),
        (lambda L, m: m.add_module("new", 3), TypeError, "is not a Module subclass"),
        (lambda L, m: m.missing, AttributeError, "has no attribute 'missing'"),
        (lambda L, m: m.get_submodule("child.x"), AttributeError, "has no attribute `x`"),
        (lambda L, m: m.get_parameter("shift"), AttributeError, "is not an nn.Parameter"),
        (lambda L, m: m.get_buffer("weight"), AttributeError, "is not a buffer"),
        (lambda L, m: m.train(3), ValueError, "training mode is expected to be boolean"),
        (lambda L, m: m.to(L.int64), TypeError, "only accepts floating point or complex"),
        (lambda L, m: L.nn.Module()(1), NotImplementedError, 'is missing the required "forward" function'),
    ],
)  # fmt: skip
def test_what_is_refused(L: ModuleType, action: Any, error: type, words: str) -> None:
    m = scale_module(L)()
    m.child = L.nn.ReLU()
    with pytest.raises(error, match=words):
        action(L, m)


def test_a_parameter_cannot_be_computed(L: ModuleType) -> None:
    p = L.nn.Parameter(L.ones(2))
    with pytest.raises((ValueError, TypeError), match=r"Cannot assign non-leaf Tensor|cannot assign"):
        L.nn.Module().register_parameter("p", p * 2)


def test_assignment_before_init(L: ModuleType) -> None:
    class Late(L.nn.Module):
        def __init__(self) -> None:
            self.layer = L.nn.ReLU()

    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\) call"):
        Late()


def test_wrappers_can_fall_back_on_getattr(L: ModuleType) -> None:
    class Wrapper(L.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.inner, name)

    assert Wrapper(L.nn.Linear(4, 5)).out_features == 5


def test_buffer_class(L: ModuleType) -> None:
    m = L.nn.Module()
    m.kept = L.nn.Buffer(L.ones(2))
    m.lost = L.nn.Buffer(L.ones(2), persistent=False)
    assert list(m.state_dict()) == ["kept"]
    assert [n for n, _ in m.named_buffers()] == ["kept", "lost"]
    assert not m.kept.requires_grad


# ---- Parameter


def test_parameter(L: ModuleType) -> None:
    data = L.ones(2)
    p = L.nn.Parameter(data)
    assert isinstance(p, L.Tensor) and p.requires_grad and p.is_leaf
    assert repr(p) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    with L.no_grad():
        p.mul_(3)
    assert data.tolist() == [3, 3] and data._version == p._version
    assert type(p * 2) is L.Tensor and type(p.detach()) is L.Tensor
    assert not L.nn.Parameter(data, requires_grad=False).requires_grad
    p.mark = "mine"
    assert p.mark == "mine"


def test_parameter_copies(L: ModuleType) -> None:
    p = L.nn.Parameter(L.ones(2))
    (p * p).sum().backward()
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert isinstance(q, L.nn.Parameter) and q.requires_grad
        assert q.tolist() == [1, 1] and q.grad is None


def test_integer_parameters(L: ModuleType) -> None:
    with pytest.raises(RuntimeError, match="floating point"):
        L.nn.Parameter(L.ones(2, dtype=L.int64))
    assert L.nn.Parameter(L.ones(2, dtype=L.int64), requires_grad=False).dtype == L.int64


# ---- walking


def test_walks(L: ModuleType) -> None:
    m = nested(L)
    shared = L.nn.Linear(1, 1)
    m.a = m.b = shared
    assert [n for n, _ in m.named_modules()] == ["", "0", "1", "1.0", "1.1", "2", "a"]
    assert [n for n, _ in m.named_modules(prefix="net", remove_duplicate=False)][-2:] == ["net.a", "net.b"]
    names = [n for n, _ in m.named_parameters()]
    assert names == ["0.weight", "0.bias", "1.0.weight", "1.0.bias", "2.weight", "2.bias", "a.weight", "a.bias"]
    assert len(list(m.named_parameters(remove_duplicate=False))) == 10
    assert [n for n, _ in m.named_parameters(prefix="x", recurse=False)] == []
    assert len(list(m.children())) == 4 and len(list(m.parameters())) == 8
    assert m.get_submodule("1.0") is m[1][0] and m.get_parameter("1.0.weight") is m[1][0].weight
    assert m.get_buffer("1.0.running_mean") is m[1][0].running_mean
    m.set_submodule("1.1", L.nn.Tanh())
    assert isinstance(m[1][1], L.nn.Tanh)
    seen: list[str] = []
    assert m.apply(lambda module: seen.append(type(module).__name__)) is m
    assert seen == ["Linear", "BatchNorm1d", "Tanh", "Sequential", "Linear", "Linear", "Sequential"]


def test_modes_and_gradients(L: ModuleType) -> None:
    m = nested(L)
    assert m.eval() is m and not any(c.training for c in m.modules())
    assert m.train() is m and all(c.training for c in m.modules())
    m(L.ones(4, 2)).sum().backward()
    m.zero_grad(set_to_none=False)
    assert all(p.grad.abs().sum() == 0 for p in m.parameters())
    m.zero_grad()
    assert all(p.grad is None for p in m.parameters())
    assert m.requires_grad_(False) is m and not any(p.requires_grad for p in m.parameters())


def test_conversion_keeps_the_parameters(L: ModuleType) -> None:
    m = nested(L)
    before = list(m.parameters())
    m(L.ones(4, 2)).sum().backward()
    assert m.to(L.float64) is m
    assert all(a is b for a, b in zip(before, m.parameters(), strict=True))
    assert all(p.dtype == L.float64 and p.grad.dtype == L.float64 for p in before)
    assert m[1][0].running_mean.dtype == L.float64 and m[1][0].num_batches_tracked.dtype == L.int64
    m(L.ones(4, 2, dtype=L.float64)).sum().backward()
    assert m.float()[0].weight.dtype == L.float32 and m.half()[0].weight.dtype == L.float16
    assert m.double()[0].weight.dtype == L.float64 and m.cpu() is m


# ---- copies and life


def test_deepcopy_and_pickle(L: ModuleType) -> None:
    m = nested(L)
    for other in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert repr(other) == repr(m)
        assert all(a is not b for a, b in zip(m.parameters(), other.parameters(), strict=True))
        other[0].weight.data.zero_()
        assert m[0].weight.abs().sum() > 0
        other.extra = L.nn.ReLU()
        assert [n for n, _ in other.named_children()] == ["0", "1", "2", "extra"]


def test_shared_parameters_stay_shared_in_copies(L: ModuleType) -> None:
    m = L.nn.Sequential(L.nn.Linear(2, 2), L.nn.Linear(2, 2))
    m[1].weight = m[0].weight
    other = copy.deepcopy(m)
    assert other[1].weight is other[0].weight


def test_shallow_copies_share_tensors(L: ModuleType) -> None:
    m = L.nn.Linear(2, 2)
    other = copy.copy(m)
    assert other.weight is m.weight
    other.bias = None
    assert other.bias is None


def test_modules_die_without_the_collector() -> None:
    gc.disable()
    m = nested(ut)
    m.register_forward_hook(lambda *a: None)
    m(ut.ones(4, 2)).sum().backward()
    deaths = [weakref.ref(module) for module in m.modules()] + [weakref.ref(p) for p in m.parameters()]
    del m
    assert [d() for d in deaths] == [None] * len(deaths)


# ---- display


def test_repr_of_nested_modules(L: ModuleType) -> None:
    assert repr(nested(L)) == (
        "Sequential(\n"
        "  (0): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (1): Sequential(\n"
        "    (0): BatchNorm1d(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)\n"
        "    (1): ReLU()\n"
        "  )\n"
        "  (2): Linear(in_features=3, out_features=1, bias=True)\n"
        ")"
    )
    assert repr(L.nn.Module()) == "Module()"


def test_repr_of_containers(L: ModuleType) -> None:
    layers = L.nn.ModuleList([L.nn.ReLU(), L.nn.ReLU(), L.nn.Tanh(), L.nn.Sequential(L.nn.ReLU())])
    assert repr(layers) == (
        "ModuleList(\n  (0-1): 2 x ReLU()\n  (2): Tanh()\n  (3): Sequential(\n    (0): ReLU()\n  )\n)"
    )
    assert repr(L.nn.ModuleList()) == "ModuleList()"
    named = L.nn.ModuleDict({"a": L.nn.ReLU()})
    assert repr(named) == "ModuleDict(\n  (a): ReLU()\n)"


# ---- state


def test_state_dict(L: ModuleType) -> None:
    m = nested(L)
    m.scale = scale_module(L)()
    state = m.state_dict()
    assert type(state) is OrderedDict
    assert list(state)[-2:] == ["scale.weight", "scale.shift"]
    assert state._metadata["1.0"] == {"version": 2} and state._metadata[""] == {"version": 1}
    assert not state["0.weight"].requires_grad
    assert m.state_dict(keep_vars=True)["0.weight"] is m[0].weight
    assert list(L.nn.Linear(1, 1).state_dict(prefix="x.")) == ["x.weight", "x.bias"]
    with L.no_grad():
        m[0].weight.zero_()
    assert state["0.weight"].abs().sum() == 0  # it shares memory


def test_load_state_dict(L: ModuleType) -> None:
    a, b = nested(L), nested(L)
    result = b.load_state_dict(a.state_dict())
    assert repr(result) == "<All keys matched successfully>"
    assert result.missing_keys == [] and result.unexpected_keys == []
    x = L.randn(4, 2)
    assert L.equal(a(x), b(x))


def test_load_state_dict_that_does_not_fit(L: ModuleType) -> None:
    m = nested(L)
    state = m.state_dict()
    del state["0.bias"]
    state["2.weight"] = L.ones(2, 3)
    state["other"] = L.ones(1)
    state["1.0.deep.er"] = L.ones(1)
    with pytest.raises(RuntimeError) as caught:
        m.load_state_dict(state)
    text = str(caught.value).replace("torch.", "undertow.")
    assert text == (
        "Error(s) in loading state_dict for Sequential:\n"
        '\tMissing key(s) in state_dict: "0.bias". \n'
        '\tUnexpected key(s) in state_dict: "other", "1.0.deep.er". \n'
        "\tsize mismatch for 2.weight: copying a param with shape undertow.Size([2, 3]) from checkpoint, the shape in "
        "current model is undertow.Size([1, 3])."
    )
    del state["2.weight"]
    found = m.load_state_dict(state, strict=False)
    assert found.missing_keys == ["0.bias", "2.weight"] and found.unexpected_keys == ["other", "1.0.deep.er"]
    assert repr(found).startswith("_IncompatibleKeys(missing_keys=['0.bias', '2.weight'], unexpected_keys=['other'")
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like"):
        m.load_state_dict(3)


def test_what_was_registered_can_be_asked_for_by_name(L: ModuleType) -> None:
    class Wrapper(L.nn.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.__setattr__("layer_1", layer)
            self.register_buffer("count", L.ones(1))

        def __getattr__(self, name: str) -> Any:
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(self.layer_1, name)

    layer = L.nn.Linear(2, 3)
    wrapper = Wrapper(layer)
    assert wrapper.__getattr__("layer_1") is layer and wrapper.__getattr__("count") is wrapper.count
    assert wrapper.weight is layer.weight is layer.__getattr__("weight") and wrapper.in_features == 2
    with pytest.raises(AttributeError, match="'Linear' object has no attribute 'layer_2'"):
        wrapper.layer_2


def test_load_by_assignment(L: ModuleType) -> None:
    m = L.nn.Linear(2, 2).requires_grad_(False)
    state = {"weight": L.ones(2, 2, dtype=L.float64), "bias": L.zeros(2)}
    m.load_state_dict(state, assign=True)
    assert m.weight.dtype == L.float64 and isinstance(m.weight, L.nn.Parameter) and not m.weight.requires_grad


def test_load_is_in_place_and_casts(L: ModuleType) -> None:
    m = L.nn.Linear(2, 2)
    weight, version = m.weight, m.weight._version
    m.load_state_dict({"weight": L.ones(2, 2, dtype=L.float64), "bias": L.zeros(2)})
    assert m.weight is weight and weight.dtype == L.float32 and weight._version > version


def test_load_arrays() -> None:
    m = ut.nn.Linear(2, 1)
    m.load_state_dict({"weight": np.ones((1, 2)), "bias": np.zeros(1, "f")})
    assert m(ut.ones(2)).item() == 2
    with pytest.raises(RuntimeError, match="expected Tensor or Tensor-like object from checkpoint but received"):
        m.load_state_dict({"weight": "text", "bias": np.zeros(1)})


def test_state_hooks(L: ModuleType) -> None:
    m, events = L.nn.Sequential(L.nn.Linear(1, 1)), []
    m.register_state_dict_pre_hook(lambda module, prefix, keep: events.append(("pre", prefix)))
    m.register_state_dict_post_hook(lambda module, state, prefix, meta: state.update(more=L.ones(1)))
    m[0].register_load_state_dict_pre_hook(lambda module, state, prefix, *rest: events.append(("load", prefix)))

    def forgive(module: Any, keys: Any) -> None:
        keys.unexpected_keys.remove("more")

    handle = m.register_load_state_dict_post_hook(forgive)
    state = m.state_dict()
    assert "more" in state
    m.load_state_dict(state)
    assert events == [("pre", ""), ("load", "0.")]
    handle.remove()
    with pytest.raises(RuntimeError, match="Unexpected key"):
        m.load_state_dict(state)


def test_extra_state(L: ModuleType) -> None:
    class Counter(L.nn.Module):
        count = 0

        def get_extra_state(self) -> Any:
            return {"count": self.count}

        def set_extra_state(self, state: Any) -> None:
            self.count = state["count"]

    a, b = L.nn.Sequential(Counter()), L.nn.Sequential(Counter())
    a[0].count = 7
    state = a.state_dict()
    assert list(state) == ["0._extra_state"]
    if L is ut:  # PyTorch 2.13's own reading of extra state is checked by its release, not by this test
        b.load_state_dict(state)
        assert b[0].count == 7
        with pytest.raises(RuntimeError, match="Missing key"):
            b.load_state_dict({})


def test_private_names_of_the_user_do_not_collide(L: ModuleType) -> None:
    """Names that programs really use for their own helpers."""

    class Mine(L.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = L.nn.Parameter(L.ones(1))
            self._hooks = [1, 2]
            self._state_hooks = self._owner = self._members = None

        def _load(self, path: str) -> None:
            raise AssertionError("not called")

        _take = _assign = _own_state = _check_name = _set_plain = _load

        def forward(self, x: Any) -> Any:
            return x * self.weight

    m = Mine()
    assert m(L.ones(1)).item() == 1
    m.load_state_dict({"weight": L.zeros(1)})
    m.register_forward_hook(lambda module, args, out: out + 7)
    assert m(L.ones(1)).item() == 7 and m._hooks == [1, 2]
    assert copy.deepcopy(m)._hooks == [1, 2]


def test_a_mixin_after_module_is_initialised_if_asked(L: ModuleType) -> None:
    class Named:
        def __init__(self, name: str = "nobody") -> None:
            self.name = name

    class Plain(L.nn.Module, Named):
        pass

    class Asking(L.nn.Module, Named):
        call_super_init = True

    assert not hasattr(Plain(), "name")
    assert Asking(name="me").name == "me"
    with pytest.raises(TypeError, match=r"Plain.__init__\(\) got an unexpected keyword argument 'name'"):
        Plain(name="me")
    with pytest.raises(TypeError, match=r"Plain.__init__\(\) takes 1 positional argument but 2 were given"):
        Plain("me")


def test_a_submodule_takes_the_place_of_modules_only(L: ModuleType) -> None:
    net = L.nn.Sequential(L.nn.Linear(2, 2))
    net.number = 5
    net.set_submodule("1", L.nn.ReLU())
    assert len(net) == 2
    with pytest.raises(AttributeError, match=r"`number` is not an nn.Module"):
        net.set_submodule("number", L.nn.ReLU())
    with pytest.raises(ValueError, match=r"is not an nn.Module"):
        net.set_submodule("0", 5)


def test_modules_as_often_as_they_are_there() -> None:
    layer = ut.nn.Linear(2, 2)
    net = ut.nn.Sequential(layer, layer)
    assert len(list(net.modules())) == 2 and len(list(net.modules(remove_duplicate=False))) == 3


def test_numbers_are_no_names(L: ModuleType) -> None:
    net = L.nn.Sequential(L.nn.Linear(2, 2))
    net.scale = L.nn.Parameter(L.ones(1))
    assert "0" not in dir(net) and {"scale", "forward", "training"} <= set(dir(net))


def test_a_buffer_takes_the_place_of_buffers_only(L: ModuleType) -> None:
    module = L.nn.Module()
    module.number = 5
    with pytest.raises(KeyError, match="attribute 'number' already exists"):
        module.number = L.nn.Buffer(L.zeros(1))
    module.mean = L.nn.Buffer(L.zeros(1))
    module.mean = L.nn.Buffer(L.ones(1))
    assert module.mean.item() == 1 and list(module.state_dict()) == ["mean"]


def test_a_class_with_getattr_sees_each_access_to_its_members() -> None:
    class Seen(ut.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log: list[str] = []
            self.weight = ut.nn.Parameter(ut.ones(2))
            self.part = ut.nn.Linear(1, 1)

        def __getattr__(self, name):
            found = super().__getattr__(name)
            self.log.append(name)
            return found

    module = Seen()
    assert module.weight.sum() == 2 and module.part.bias is not None
    module.weight = ut.nn.Parameter(ut.zeros(2))
    assert module.weight.sum() == 0 and list(module.state_dict()) == ["weight", "part.weight", "part.bias"]
    assert [name for name in module.log if name in ("weight", "part")] == ["weight", "part", "weight"]
    assert [name for name, _ in module._named_members(lambda m: m._parameters.items())] == [
        "weight", "part.weight", "part.bias",
    ]  # fmt: skip
    assert copy.deepcopy(module).weight.shape == (2,)
    del module.weight
    assert not hasattr(module, "weight")
