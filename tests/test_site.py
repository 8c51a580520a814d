"""What the site is made of: every page is listed, links stay on the site, and the reference has everything public."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import undertow as ut
from tests.instrument.browser import Browser, needs_browser
from tools.missing_names import MODULES, names_of, resolve
from tools.site import kinks, names, pages, questions, reference, texts
from undertow.compiled import core
from undertow.ops.reference import arguments

INDEX = (pages.DOCS / "index.md").read_text(encoding="utf-8")


def test_the_index_lists_every_page_once() -> None:
    listed = [page for group in pages.groups(INDEX).values() for page in group]
    there = [path.name for path in pages.DOCS.glob("*.md") if path.name != "index.md"]
    assert sorted(listed) == sorted([*there, "readme.md", "contributing.md", "changelog.md"])
    assert list(pages.groups(INDEX)) == ["Start", "Use", "Understand", "Maintain"]


def test_the_search_prefers_pages_for_users() -> None:
    ranks = pages.ranks(INDEX)
    assert ranks["ten-minutes"] > ranks["tour"] > ranks["engine"] > 0 > ranks["architecture"] > ranks["changelog"]
    assert len(set(ranks)) == len([page for group in pages.groups(INDEX).values() for page in group])


def test_links_lead_to_pages_of_the_site() -> None:
    text = "[a](../README.md) [ten.md](ten.md#x) [`x.c`](../csrc/x.c) [dir](../examples) [p](../examples/p.py) [o](https://o)"
    assert pages.for_site(text, "docs/page.md") == (
        "[a](readme.md) [](ten.md#x) `x.c` `dir` [p](programs/p.py) [o](https://o)"
    )
    assert pages.for_site("[a](docs/page.md)", "README.md") == "[a](page.md)"
    assert pages.for_site("![a](../seeing/page.png)", "docs/examples/x.md") == "![a](../seeing/page.png)"


def test_docstrings_become_markdown() -> None:
    doc = """One *star*, `x_y`.

    first   what it is
    second  the other,
            on two lines

        x + y

    >>> 1 + 1
    2
    """
    assert texts.markdown(doc) == (
        "One \\*star\\*, `x_y`.\n\n- `first`: what it is\n- `second`: the other,\n  on two lines\n\n"
        "```text\nx + y\n```\n\n```pycon\n>>> 1 + 1\n2\n```"
    )


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return reference.pages()


def test_the_reference_has_every_public_function(made: dict[str, str]) -> None:
    everything = "\n".join(made.values())
    described = set(re.findall(r"^:{4,5}\{py:\w+\} ([\w.]+)", everything, re.M))
    for path in ("undertow", "undertow.Tensor", "undertow.linalg", "undertow.nn"):
        place = reference.resolve(path)
        public = [n for n in reference.public_names(place) if callable(getattr(place, n, None))]
        assert [n for n in public if f"{path}.{n}" not in described] == []
    assert {"undertow.autograd.forward_ad.make_dual", "undertow.interop.value_and_jac"} <= described
    assert "As PyTorch's function of this name" not in everything


#: what people look for, as PyTorch's documentation spells it
NAMES = """
    tensor zeros arange cat stack where einsum matmul bmm softmax no_grad enable_grad inference_mode save load
    manual_seed set_default_dtype vmap topk gather scatter logsumexp clamp cumsum from_numpy as_tensor
    sparse_coo_tensor polar stft Tensor.backward Tensor.detach Tensor.grad Tensor.requires_grad_ Tensor.retain_grad
    Tensor.register_hook Tensor.view Tensor.item Tensor.numpy Tensor.to Tensor.is_leaf Tensor.grad_fn Tensor.data
    Tensor.index_put_ Tensor.copy_ autograd.grad autograd.backward autograd.Function autograd.gradcheck
    autograd.detect_anomaly autograd.functional.jacobian autograd.functional.hessian autograd.forward_ad.make_dual
    autograd.profiler.profile autograd.function.once_differentiable autograd.function.FunctionCtx
    autograd.graph.saved_tensors_hooks autograd.graph.save_on_cpu autograd.graph.register_multi_grad_hook
    autograd.graph.Node func.grad func.jacrev func.jacfwd func.functional_call utils.checkpoint.checkpoint
    utils.data.DataLoader utils.data.TensorDataset utils.tensorboard.SummaryWriter
    utils.flop_counter.FlopCounterMode profiler.profile profiler.record_function nn.Module nn.Linear nn.Conv2d
    nn.LSTM nn.Transformer nn.BatchNorm2d nn.Embedding nn.CrossEntropyLoss nn.MultiheadAttention nn.Parameter
    nn.functional.cross_entropy nn.functional.scaled_dot_product_attention nn.utils.clip_grad_norm_
    nn.init.xavier_uniform_ nn.Module.state_dict nn.Module.load_state_dict optim.Adam optim.SGD optim.LBFGS
    optim.Optimizer.step optim.lr_scheduler.CosineAnnealingLR linalg.svd linalg.solve fft.fft special.gammaln
    distributions.Normal distributed.all_reduce distributed.rpc.rpc_sync amp.autocast amp.GradScaler
    cuda.synchronize cuda.memory_allocated nn.utils.rnn.pad_sequence
""".split()


def test_a_hundred_names_of_pytorch_have_their_entries(made: dict[str, str]) -> None:
    described = reference.described(made)
    ours = [f"undertow.{name}".replace("undertow.utils.data.", "undertow.data.") for name in NAMES]
    assert len(NAMES) > 100 and [name for name in ours if name not in described] == []


@pytest.fixture(scope="module")
def known(made: dict[str, str]) -> dict[str, Any]:
    return names.names(reference.described(made), reference.members(made))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:`torch.distributed.reduce_op` is deprecated")
def test_the_search_knows_all_that_pytorch_describes(made: dict[str, str], known: dict[str, Any]) -> None:
    """An entry, that of the same thing elsewhere, a sentence, or what to use instead."""
    described = {name.removeprefix("undertow.") for name in reference.described(made)}
    answered = described | set(known["aliases"]) | set(known["plain"])
    unknown = []
    for module in MODULES:
        place, below = resolve(module), module.removeprefix("torch.")
        for name in sorted(names_of(place)):
            full = f"torch.{known['moved'].get(below, below)}.{name}" if module != "torch" else f"torch.{name}"
            if not callable(getattr(place, name, None)) or not inspect.getdoc(getattr(place, name)):
                continue
            if full.removeprefix("torch.") not in answered and not any(re.match(p, full) for p, _ in known["reasons"]):
                unknown.append(full)
    assert unknown == []


def test_the_search_knows_what_stands_elsewhere(made: dict[str, str], known: dict[str, Any]) -> None:
    """What a class inherits, names by the files that PyTorch has for them, modules without a page."""
    assert "undertow.nn.Transformer.generate_square_subsequent_mask" in reference.members(made)
    assert known["classes"]["nn.LazyConv1d"][:2] == ["nn.Conv1d", "nn.Module"]
    assert known["classes"]["nn.Parameter"] == ["Tensor"] and " state_dict " in known["members"]["nn.Module"]
    assert known["aliases"]["optim.adamw.AdamW"] == "optim.AdamW" and known["aliases"]["long"] == "dtype"
    assert known["moved"]["nn.modules.linear"] == "nn" and known["moved"]["cuda.amp"] == "amp"
    assert known["plain"]["fx"].startswith("Tracing in small") and "docs/libraries.md" in known["plain"]["fx.wrap"]
    assert known["plain"]["backends.cudnn.benchmark"].startswith("bool False.")
    assert set(names.SPOKEN_OF.values()) <= {path.stem for path in pages.DOCS.glob("*.md")}
    assert not [name for name in known["plain"] if "undertow has no" in known["plain"][name]]


def test_entries_say_what_shared_arguments_are(made: dict[str, str]) -> None:
    """Those of their own words, and those that many functions share."""
    text = made["functions-reduce.md"]
    shown = text[text.index("{py:function} undertow.amax(") :][:400]
    assert "- `keepdim`: whether a dimension that is reduced stays" in shown
    assert shown.index("keepdim`") < shown.index("```")
    call, words = "(input, dim=None, keepdim=False)", "The sum of `input` over `dim`."
    assert list(arguments.unexplained("undertow.x", call, words)) == ["keepdim"]
    assert "loc" in arguments.meanings("undertow.distributions.Normal")
    assert "loc" not in arguments.meanings("undertow.x")
    assert reference.explained("undertow.x", call, "See {py:func}`undertow.y`.") == "See {py:func}`undertow.y`."
    used = "\n".join(made.values())
    unused = [
        name for known in arguments.MEANINGS.values() for name in known if f"- `{name}`: {known[name]}" not in used
    ]
    assert unused == []


@pytest.mark.skipif(core is None, reason="without the core, help shows of an operation only what it keeps")
def test_help_says_what_arguments_are() -> None:
    assert "dim1    the first of the two dimensions" in (ut.diagonal.__doc__ or "")
    assert "invert         whether each element is not" in (ut.isin.__doc__ or "")


ENTRY = re.compile(r"(:{4,5})\{py:(\w+)\} ([\w.]+)(.*)")


def entries(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Kind, name, call and words of each entry of a page of the reference; its methods apart."""
    found: list[tuple[str, str, str, list[str]]] = []
    for line in text.splitlines():
        head = ENTRY.fullmatch(line)
        if head is not None:
            name = head[3] if head[1] == ":::::" else f"{found[-1][1]}.{head[3]}"
            found.append((head[2], name, head[4], []))
        elif re.fullmatch(":{4,5}", line) and found:
            kind, name, call, lines = found.pop()
            yield kind, name, call, "\n".join(lines).strip()
        elif found:
            found[-1][3].append(line)


def test_every_argument_is_explained(made: dict[str, str]) -> None:
    """In words: not in a formula, and not in an example."""
    left_out, count = [], 0
    for text in made.values():
        for _, name, call, body in entries(text):
            if reference.REFERS.search(body):
                continue
            words = re.sub(r"(?s)^```.*?^```", "", body, flags=re.M).replace("\\_", "_")
            given = re.findall(r"(?<=[(,] )\*{0,2}\w+|(?<=\()\*{0,2}\w+", re.sub(r"=\([^()]*\)", "=", call))
            for argument in [each.strip("*") for each in given if not re.fullmatch(r"\*+|None|\d+", each)]:
                count += 1
                if not re.search(rf"(?<!\w){argument}(?!\w)", words):
                    left_out.append(f"{name}: {argument}")
    assert left_out == [] and count > 4000


def test_the_search_knows_who_has_an_argument(made: dict[str, str]) -> None:
    found = names.parameters(made)
    assert found["allow_unused"] == ["autograd.grad"] and found["map_location"] == ["load"]
    assert {"Tensor.backward", "autograd.backward", "autograd.grad"} <= set(found["retain_graph"][:4])
    assert found["set_to_none"] == ["nn.Module.zero_grad", "optim.Optimizer.zero_grad"]
    assert max(map(len, found.values())) == names.TAKERS


def test_the_search_knows_the_questions_of_tables() -> None:
    found = dict(questions.questions())
    assert found["use a GPU, or multiple GPUs?"] == ["cuda", "nn#several-devices"]
    assert found["What is it, and how do I try it?"] == ["readme"] and len(found) > 60
    places = {place.partition("#")[0] for answers in found.values() for place in answers}
    shown = {str(path.relative_to(pages.DOCS).with_suffix("")) for path in pages.DOCS.rglob("*.md")}
    assert places <= shown | {"readme", "contributing", "changelog"}


ENTRIES = """undertow.scatter undertow.distributed.scatter undertow.Tensor.scatter undertow.nn.Linear
undertow.nn.functional.linear undertow.data.DataLoader undertow.func.grad undertow.autograd.grad
undertow.nn.DataParallel undertow.GradScaler.state_dict undertow.nn.Module.state_dict undertow.optim.AdamW
undertow.dtype undertow.optim.Optimizer.step undertow.Tensor.grad""".split()


@needs_browser
def test_the_search_puts_the_name_itself_first(known: dict[str, Any], tmp_path: Path) -> None:
    code = (pages.DOCS / "_static" / "torch_names.js").read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(f"<script>const TORCH_NAMES = {json.dumps(known)};{code}</script>", encoding="utf-8")
    asked = {
        "torch.scatter": "undertow.scatter", "torch.Tensor.scatter": "undertow.Tensor.scatter",
        "scatter": "undertow.scatter", "dist.scatter": "undertow.distributed.scatter",
        "torch.nn.Linear": "undertow.nn.Linear", "nn.Linear(": "undertow.nn.Linear",
        "F.linear": "undertow.nn.functional.linear", "linear": "undertow.nn.functional.linear",
        "torch.utils.data.DataLoader": "undertow.data.DataLoader", "DataLoader": "undertow.data.DataLoader",
        "torch.func.grad": "undertow.func.grad", "torch.nn.parallel.DataParallel": "undertow.nn.DataParallel",
        "torch.nn.Linear.state_dict": "undertow.nn.Module.state_dict", "state_dict": "undertow.nn.Module.state_dict",
        "torch.optim.adamw.AdamW": "undertow.optim.AdamW", "torch.nn.modules.linear.Linear": "undertow.nn.Linear",
        "torch.nn.Linear.weight": "undertow.nn.Linear", "torch.float16": "undertow.dtype",
        "torch.optim.Adam.step": "undertow.optim.Optimizer.step", "torch.nn.Parameter.grad": "undertow.Tensor.grad",
    }  # fmt: skip
    with Browser() as browser:
        shown = browser.open(page)

        def first(name: str) -> str:
            order = "(a, b) => torchNames.fit(b, name) - torchNames.fit(a, name)"
            return shown.value(f"(() => {{ const name = torchNames.path('{name}');"
                               f" return {json.dumps(ENTRIES)}.toSorted({order})[0] }})()")  # fmt: skip

        assert {name: first(name) for name in asked} == asked

        def note(name: str) -> Any:
            return shown.value(f"torchNames.note('{name}', true)")

        assert "use reshape and permute, or the package einops" in note("torch.func.rearrange")
        assert "use Dataset or IterableDataset" in note("torch.utils.data.DataChunk")
        assert note("torch.cuda.nvtx.mark").startswith("undertow.cuda.nvtx.mark: Mark a moment.")
        assert "become CUDA graphs by themselves" in note("torch.cuda.CUDAGraph")
        assert "become CUDA graphs by themselves" in note("torch.cuda.graph_pool_handle")
        assert shown.value("torchNames.path('torch.cuda.OutOfMemoryError')") == "OutOfMemoryError"
        assert note("torch.float32").startswith("undertow.float32: dtype undertow.float32.")
        assert note("torch.onnx.export").startswith("undertow has no onnx.export: models are not exported")
        assert note("torch.Tensor.__getitem__") is None and note("torch.asdf").startswith("undertow has no asdf. What")
        assert note("torch.fx").startswith("undertow.fx: Tracing in small") and "docs/libraries.md" in note(
            "torch.fx.wrap"
        )
        assert note("torch.nn.Linear.weight") == (
            "weight has no entry of its own: here is that of its class, undertow.nn.Linear."
        )
        assert note("torch.nn.Linear.state_dict") is None and note("torch.export").startswith(
            "undertow has no export: mod"
        )
        assert note("torch.Tensor.storage_type").startswith("undertow has no Tensor.storage_type: ")
        assert shown.value("torchNames.path('torch.utils.data')") == "data"
        assert shown.value("torchNames.path('gradient of a sum')") is None


def test_entries_have_examples(made: dict[str, str]) -> None:
    entry = re.compile(r"^:{5}\{py:(?:function|method|class)\} ([\w.]+).*?\n\n(.*?)^:{5}$", re.M | re.S)
    text = "\n".join(made.values())
    refers = re.compile("The same as|See {py:|^>>> |^```python$", re.M)
    lacking = [name for name, body in entry.findall(text) if not refers.search(body)]
    assert lacking == [], "give them `>>>` lines, or a line `Example: ...`"


def test_the_reference_shows_what_examples_return_and_kinks(made: dict[str, str]) -> None:
    text = made["functions-pointwise.md"]
    start = text.index("{py:function} undertow.abs(")
    shown = text[start : text.index(":::::", start)]
    assert f">>> ut.abs(ut.tensor([0.25, 0.75]))\n{ut.tensor([0.25, 0.75])!r}" in shown
    start = text.index("{py:function} undertow.hardsigmoid(")  # its rule calls a private function
    assert "where(strictly_between(input, -3, 3), g / 6, 0)" in text[start : start + 500]
    layers = reference.layers()
    assert (layers["conv2d"], layers["cross_entropy"], layers["kl_div"]) == ("Conv2d", "CrossEntropyLoss", "KLDivLoss")
    assert all(hasattr(ut.nn, layer) for layer in layers.values()) and len(layers) > 80
    assert "{py:class}`undertow.nn.Conv2d`" in made["nn-functional.md"]
    assert "gradient of input: g * sgn(input)" in shown and "[rule 2](../kinks.md)" in shown
    assert len(kinks.kinks()) > 50
    assert "`clamp`, written into the tensor itself.\n\nSee {py:func}`undertow.clamp`." in made["functions-other.md"]


def test_no_page_is_left_for_the_site_to_find(tmp_path: Path) -> None:
    from tools.site.__main__ import prepare

    prepare(tmp_path / "source")
    links = re.compile(r"\]\((?!https?:|#)([^)#\s]+)")
    for page in (tmp_path / "source").rglob("*.md"):
        missing = [n for n in links.findall(page.read_text(encoding="utf-8")) if not (page.parent / n).exists()]
        assert missing == [], page.name
