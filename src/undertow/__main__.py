"""Command line: ``python -m undertow [demo | info]``."""

from __future__ import annotations

import argparse
import sys

import undertow as ut
from undertow.demo import run_demo
from undertow.demo.info import describe


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="python -m undertow", description="undertow: PyTorch's autograd, rule for rule, on NumPy arrays."
    )
    top.add_argument("--version", action="version", version=f"undertow {ut.__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser("demo", help="train a small network and check its gradients (a few seconds)")
    demo.add_argument("--steps", type=positive, default=1000, help="training steps (default 1000)")
    demo.add_argument("--hidden", type=positive, default=32, help="units in each hidden layer (default 32)")
    demo.add_argument("--seed", type=natural, default=0, help="of the data and the first weights (default 0)")
    demo.add_argument("--quiet", action="store_true", help="print the summary only")
    commands.add_parser("info", help="show versions, devices and thread counts")
    return top


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 up, got {text!r}")
    return int(text)


def natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 up, got {text!r}")
    return int(text)


def main(arguments: list[str] | None = None) -> int:
    top = parser()
    options = top.parse_args(arguments)
    if options.command == "demo":
        return run_demo(options.steps, options.hidden, options.seed, options.quiet)
    if options.command == "info":
        print(describe(), end="")
        return 0
    print(f"undertow {ut.__version__}\n")
    top.print_help()
    return 0


if __name__ == "__main__":
    sys.exit(main())
