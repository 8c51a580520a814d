"""Models from a folder that holds a `hubconf.py`. Nothing is downloaded.

A file that PyTorch would download is found if it lies where PyTorch keeps those: `torch.hub.get_dir()/checkpoints`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from typing import Any, NoReturn
from urllib.parse import urlparse

from undertow.interop.files import load as load_file
from undertow.torch_names.missing import refusal

HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_folder: list[str | None] = [None]


def _get_torch_home() -> str:
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder of files that were downloaded."""
    return _folder[0] or os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    _folder[0] = os.path.expanduser(os.fspath(d))


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> Any:
    """What `torch.load` reads from the file that was downloaded from there before, by whatever means."""
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        refusal("a download by torch.hub", f"download {url} by other means, and put it at {path}.")
    return load_file(path, map_location=map_location)


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> NoReturn:
    refusal("torch.hub.download_url_to_file", f"download {url} by other means, and put it at {dst}.")


def _module_of(repo_or_dir: str, source: str) -> Any:
    if source != "local":
        refusal("a repository by torch.hub", f"clone {repo_or_dir}, and give its folder with source='local'.")
    path = os.path.join(os.path.expanduser(repo_or_dir), "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(path))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(os.path.dirname(path))
    return module


def load(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """What the function `model` of a folder's hubconf.py returns."""
    for option in ("trust_repo", "force_reload", "verbose", "skip_validation"):
        kwargs.pop(option, None)
    return getattr(_module_of(repo_or_dir, source), model)(*args, **kwargs)


def list(repo_or_dir: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """The names of the functions in a folder's hubconf.py."""
    module = _module_of(repo_or_dir, source)
    return [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]


def help(repo_or_dir: str, model: str, *args: Any, source: str = "github", **kwargs: Any) -> Any:
    """The docstring of a function in a folder's hubconf.py."""
    return getattr(_module_of(repo_or_dir, source), model).__doc__
