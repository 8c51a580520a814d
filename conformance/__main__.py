"""Command line: ``python -m conformance --tests PATH [--group 6] [-k name] [--list]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from tools.figures import store

from . import report, supervisor
from .groups import Test, load_deviations, load_tests, load_titles


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__doc__)
    add = parser.add_argument
    add("--tests", type=Path, required=True, help="a PyTorch 2.13 checkout, or its test folder")
    add("--group", action="append", help="only this group (may be given again): 1, 7a, ...")
    add("--class", dest="kinds", action="append", help="only this class (may be given again): A, B, G1, G2, X")
    add("-k", dest="name", action="append", help="only tests whose id contains this (may be given again)")
    add("--list", action="store_true", help="list the tests instead of running them")
    add("--timeout", type=float, default=60.0, help="seconds one test may take (default 60)")
    add("--no-slow", dest="slow", action="store_false", help="leave out what PyTorch marks as slow")
    add("--reference", action="store_true", help="run the installed PyTorch instead of undertow")
    add("--isolate", action="store_true", help="a process of its own for every test")
    add("--report", type=Path, default=Path("conformance-failures.txt"), help="where the failures are listed")
    add("--log", type=Path, help="keep what the tests print (default: beside the report)")
    add("--markdown", action="store_true", help="print the table as Markdown")
    add("--update", action="store_true", help="write docs/figures/conformance.json, and the table into the page")
    add("-v", dest="verbose", action="store_true", help="name each test, show full tracebacks")
    return parser.parse_args(argv)


def find_test_dir(path: Path) -> Path:
    for candidate in (path / "test", path):
        if (candidate / "test_autograd.py").is_file():
            return candidate.resolve()
    raise SystemExit(f"no test_autograd.py in {path} or {path / 'test'}; give --tests a PyTorch checkout")


def choose(tests: dict[str, Test], options: argparse.Namespace) -> dict[str, Test]:
    def wanted(test: Test) -> bool:
        return (
            (not options.group or test.group in options.group)
            and (not options.kinds or test.kind in options.kinds)
            and (not options.name or any(part in test.id for part in options.name))
        )

    chosen = {test.id: test for test in tests.values() if wanted(test)}
    if not chosen:
        raise SystemExit("no test matches; --list shows them all")
    return chosen


def compare(listed: Iterable[str], found: Iterable[str]) -> None:
    """Refuse files whose tests are not the ones groups.toml lists: the figures would mean nothing."""
    listed, found = set(listed), set(found)
    if listed == found:
        return
    lines = [f"  missing: {test}" for test in sorted(listed - found)]
    lines += [f"  not listed: {test}" for test in sorted(found - listed)]
    raise SystemExit("the files do not hold the tests of groups.toml:\n" + "\n".join(lines))


def run(settings: supervisor.Settings, chosen: list[str], options: argparse.Namespace) -> list[supervisor.Result]:
    def notify(result: supervisor.Result) -> None:
        if options.verbose:
            print(f"{result.status:<8} {result.seconds:6.2f} s  {result.test}", flush=True)

    batches = [[test] for test in chosen] if options.isolate else [chosen]
    return [result for batch in batches for result in supervisor.run(settings, batch, notify)]


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    tests = load_tests()
    chosen = choose(tests, options)
    if options.list:
        print("\n".join(f"{test.group:>3} {test.kind:<2} {test.id}" for test in chosen.values()))
        return 0
    log = (options.log or options.report.with_suffix(".log")).resolve()
    log.write_bytes(b"")
    settings = supervisor.Settings(find_test_dir(options.tests), options.reference, options.slow, options.timeout, log)
    try:
        compare(tests, supervisor.collect(settings))
        results = run(settings, list(chosen), options)
    except supervisor.ImportFailed as error:
        raise SystemExit(f"{error}\n{log.read_text(errors='replace')[-3000:]}") from None
    show(chosen, results, options)
    return 0


def show(chosen: dict[str, Test], results: list[supervisor.Result], options: argparse.Namespace) -> None:
    if options.verbose:
        print(report.tracebacks(results))
    table = report.rows(chosen, load_titles(), results)
    print(report.as_markdown(table) if options.markdown else report.as_text(table))
    if options.update:
        store("conformance", "conformance", "python -m conformance --tests PATH --update", report.as_figures(table))
    print(report.summary(results))
    print(report.deviations(load_deviations(), results), end="")
    options.report.write_text(report.failures(chosen, results), encoding="utf-8")
    print(f"failures listed in {options.report}")


if __name__ == "__main__":
    sys.exit(main())
