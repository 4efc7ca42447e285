"""What `sosmarkov bench` hands on: list experiments, run one, show the table.

Like `sosmarkov_bench.runner` it loads JAX only when an experiment runs.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from sosmarkov.cli.output import facts, remark, say
from sosmarkov.cli.parser import Parser
from sosmarkov_bench import runner


def run(words: Sequence[str]) -> int:
    """Answer the words after `sosmarkov bench`; returns the exit code."""
    options = make_parser().parse(words)
    return options.run(options)


def make_parser() -> Parser:
    """The three actions."""
    parser = Parser(prog="sosmarkov bench", description="Experiments of the library beside other methods.")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    every = actions.add_parser("list", help="all experiments")
    one = actions.add_parser("run", help="run one")
    found = actions.add_parser("table", help="what was found")
    for action, answer in ((every, _list), (one, _run), (found, _table)):
        action.set_defaults(run=answer, parser=action)
        action.add_argument("--debug", action="store_true", help="show the traceback of an error")
    one.add_argument("name", metavar="NAME", help="see `sosmarkov bench list`")
    one.add_argument("--profile", choices=runner.PROFILES, default="quick", help="default %(default)s")
    for action in (one, found):
        about = "the folder of results; default %(default)s"
        action.add_argument("--out", type=Path, metavar="FOLDER", default=runner.RESULTS, help=about)
    return parser


def _list(options: Namespace) -> int:
    del options
    say(facts(runner.list_experiments()))
    return 0


def _run(options: Namespace) -> int:
    records = runner.run(options.name, options.profile, options.out, progress=say)
    failed = sum("failed" in record for record in records)
    if failed:
        remark(f"sosmarkov: {failed} of {len(records)} rows failed; run again to try these anew.")
    return 1 if failed else 0


def _table(options: Namespace) -> int:
    say(runner.table(options.out))
    return 0
