"""Command line: ``python -m undertow [demo | info | run | doctor | watch]``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import undertow as ut
from undertow.demo import run_demo
from undertow.demo.info import describe
from undertow.instrument.command import run_watched


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m undertow", description="undertow: PyTorch's autograd, rule for rule, on NumPy arrays."
    )
    top.add_argument("--version", action="version", version=f"undertow {ut.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser("demo", help="train a network that reads digits (a few seconds)")
    demo.add_argument("--epochs", type=between(1, 1000), default=8, help="passes over the images (default 8)")
    demo.add_argument("--hidden", type=between(1, 4096), default=64, help="units of the hidden layer (default 64)")
    demo.add_argument(
        "--seed", type=between(0, 2**32 - 1), default=0, help="of the data and the first weights (default 0)"
    )
    demo.add_argument(
        "--save", type=new_file, metavar="FILE", help="keep the trained network (.npz, .safetensors or .pt)"
    )
    demo.add_argument("--plot", type=new_file, metavar="FILE", help="draw the loss and the weights, by matplotlib")
    demo.add_argument("--quiet", action="store_true", help="print the summary only")
    commands.add_parser("info", help="show versions, devices and thread counts")
    commands.add_parser("run", help="run a program written for PyTorch as it is: `import torch` finds undertow")
    doctor = commands.add_parser("doctor", help="list the names of torch that a program mentions and undertow lacks")
    doctor.add_argument(
        "paths", nargs="+", metavar="PATH", help="Python files, folders, or packages that are installed"
    )
    watch = commands.add_parser("watch", help="run a program, and write a page that replays its backward passes")
    watch.add_argument("--page", type=new_file, default="watch.html", help="the page (default watch.html)")
    watch.add_argument(
        "--trace", type=new_file, default="watch.trace.json", help="the trace for Perfetto (default watch.trace.json)"
    )
    watch.add_argument(
        "--passes", type=between(1, 10_000), default=3, help="how many backward passes the page shows (default 3)"
    )
    watch.add_argument(
        "--as-torch", action="store_true", help="the program is written for PyTorch: `import torch` finds undertow"
    )
    watch.add_argument("program", type=python_file, metavar="PROGRAM", help="a Python file")
    watch.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="what the program is given")
    return top


def between(lowest: int, highest: int) -> Callable[[str], int]:
    """The type of an option that takes whole numbers in this range."""

    def number(text: str) -> int:
        if not text.isdecimal() or not lowest <= int(text) <= highest:
            raise argparse.ArgumentTypeError(f"expected a whole number from {lowest} to {highest}, got {text!r}")
        return int(text)

    return number


def new_file(text: str) -> str:
    """The type of an option that names a file to be written."""
    folder = os.path.dirname(text) or "."
    if not os.path.isdir(folder) or os.path.isdir(text):
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, got {text!r}")
    return text


def python_file(text: str) -> str:
    """The type of an argument that names a program."""
    if not os.path.isfile(text):
        raise argparse.ArgumentTypeError(f"expected a Python file, got {text!r}")
    return text


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["run"]:  # what follows belongs to the program
        from undertow.stand_in.run import run as run_program

        return run_program(arguments[1:])
    top = parser()
    options = top.parse_args(arguments)
    if options.command == "doctor":
        from undertow.stand_in.doctor import examine

        return examine(options.paths)
    if options.command == "demo":
        return run_demo(options.epochs, options.hidden, options.seed, options.quiet, options.save, options.plot)
    if options.command == "info":
        print(describe(), end="")
        return 0
    if options.command == "watch":
        if options.as_torch:
            from undertow.stand_in.run import stand_in

            stand_in()
        return run_watched(options.program, options.arguments, options.page, options.trace, options.passes)
    print(f"undertow {ut.__version__}\n")
    top.print_help()
    return 0


def run() -> int:
    """`main`, ending quietly when the reader of the output has gone (`| head`) or the user has had enough."""
    try:
        code = main()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it closes it
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(run())
