"""What `save` does to what is already there: it replaces regular files as a whole, and nothing else."""

from __future__ import annotations

import errno
import gc
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

import undertow as ut


@pytest.fixture(params=[".npz", ".pt", ".safetensors"])
def ending(request: pytest.FixtureRequest) -> str:
    if request.param == ".safetensors":
        pytest.importorskip("safetensors")
    return str(request.param)


def left_over(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path: Path, ending: str) -> None:
    target, link = tmp_path / f"target{ending}", tmp_path / f"link{ending}"
    ut.save({"a": ut.zeros(1)}, target)
    link.symlink_to(target.name)
    ut.save({"a": ut.ones(2)}, link)
    assert link.is_symlink() and not target.is_symlink()
    assert ut.load(target)["a"].tolist() == [1, 1]


def test_a_link_that_leads_nowhere_yet(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"link{ending}").symlink_to(f"target{ending}")
    ut.save({"a": ut.ones(2)}, tmp_path / f"link{ending}")
    assert (tmp_path / f"link{ending}").is_symlink() and ut.load(tmp_path / f"target{ending}")["a"].tolist() == [1, 1]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664])
def test_the_mode_of_a_file_stays(tmp_path: Path, ending: str, mode: int) -> None:
    path = tmp_path / f"x{ending}"
    ut.save({"a": ut.zeros(1)}, path)
    path.chmod(mode)
    ut.save({"a": ut.ones(1)}, path)
    assert stat.S_IMODE(path.stat().st_mode) == mode and ut.load(path)["a"].tolist() == [1]


def test_a_fifo_is_written_to(tmp_path: Path, ending: str) -> None:
    fifo, copy = tmp_path / f"fifo{ending}", tmp_path / f"copy{ending}"
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: copy.write_bytes(fifo.read_bytes()), daemon=True)
    reader.start()
    ut.save({"a": ut.ones(30_000)}, fifo)  # longer than a pipe holds
    reader.join(60)
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert ut.load(copy)["a"].sum().item() == 30_000


def test_a_device_stays_a_device(tmp_path: Path) -> None:
    """/dev/null, through a link, so that a program that would replace it does no harm."""
    (tmp_path / "null").symlink_to("/dev/null")
    ut.save({"a": ut.ones(2)}, tmp_path / "null")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode) and (tmp_path / "null").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a device")
def test_a_device_node_is_not_replaced(tmp_path: Path, ending: str) -> None:
    node = tmp_path / f"null{ending}"
    try:
        os.mknod(node, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except OSError as error:
        pytest.skip(f"not even root may make a device here: {error}")
    ut.save({"a": ut.ones(2)}, node)
    assert stat.S_ISCHR(node.stat().st_mode)


def test_a_folder_is_refused(tmp_path: Path, ending: str) -> None:
    (tmp_path / f"x{ending}").mkdir()
    with pytest.raises(IsADirectoryError):
        ut.save({"a": ut.ones(2)}, tmp_path / f"x{ending}")
    assert left_over(tmp_path) == [f"x{ending}"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, ending: str) -> None:
    """A limit on the length of files stops a write in its middle, as a full disk does."""
    program = """
    import resource, sys
    import undertow as ut
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    for size in (3_000, 10_000, 100_000):
        try:
            ut.save({"a": ut.zeros(100), "b": ut.ones(size)}, sys.argv[1])
        except Exception as error:
            print(type(error).__name__)
    """
    path = tmp_path / f"x{ending}"
    ut.save({"a": ut.ones(3)}, path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), str(path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.split() == ["OSError"] * 3
    assert ut.load(path)["a"].tolist() == [1, 1, 1] and left_over(tmp_path) == [path.name]


def test_a_disk_that_is_full_in_the_middle(tmp_path: Path) -> None:
    small = Path("/dev/full")
    if not small.exists():
        pytest.skip("there is no /dev/full")
    with pytest.raises(OSError) as caught:
        ut.save({"a": ut.ones(1000)}, small)
    assert caught.value.errno == errno.ENOSPC and stat.S_ISCHR(small.stat().st_mode)


def test_an_interrupt_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    ut.save({"a": ut.ones(3)}, path)
    tree: Any = {str(k): ut.zeros(1000) for k in range(200)}
    gc.disable()  # hypothesis is told of collections: an interrupt in what it does then is not raised here
    former = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for delay in (0.0003, 0.001, 0.003, 0.01, 0.02):
            try:  # which the timer does not outlast
                signal.setitimer(signal.ITIMER_REAL, delay)
                ut.save(tree, path)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                assert set(ut.load(path)) == {"a"} or len(ut.load(path)) == 200
            assert left_over(tmp_path) == ["x.pt"]
            ut.save({"a": ut.ones(3)}, path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
