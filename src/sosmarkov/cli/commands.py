"""What can be asked: every command with its options and its help.

The files that answer are imported when a command runs, so that `--help` loads neither NumPy nor JAX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from inspect import cleandoc
from pathlib import Path

from sosmarkov import __version__
from sosmarkov.cli.parser import Parser

_ABOUT = """\
Learn a Markov process from trajectories; predict, filter and ask for probabilities, exactly.

  sosmarkov fit runs.csv --trajectory id --time t -o model.sosm
  sosmarkov propagate model.sosm --steps 10 -o beliefs.csv
  sosmarkov probability model.sosm --step 5 --box "x=0:1"
"""
_CODES = """\
`sosmarkov COMMAND --help` tells more. Every command takes --debug, which shows the traceback of an error.
Exit codes: 0 fine, 1 input refused, 2 command not understood, 130 interrupted.
"""


_COMMANDS: list[tuple[str, Callable[[Parser], None]]] = []


def make_parser() -> Parser:
    """All commands."""
    parser = Parser(prog="sosmarkov", description=_ABOUT, epilog=_CODES)
    parser.add_argument("--version", action="version", version=f"sosmarkov {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, title="commands")
    for run, give in _COMMANDS:
        # Examples stand out, however much of their margin is left by now.
        text = re.sub(r"(?m)^ *(?=sosmarkov )", "  ", cleandoc(give.__doc__ or ""))
        one = commands.add_parser(give.__name__[1:], help=text.partition("\n")[0], description=f"{text}\n")
        one.set_defaults(run=run, parser=one)
        one.add_argument("--debug", action="store_true", help="show the traceback of an error")
        give(one)
    return parser


def _command(run: str) -> Callable[[Callable[[Parser], None]], Callable[[Parser], None]]:
    """A command, called and described as the function that gives it options; `run` is the file and function behind."""

    def known(give: Callable[[Parser], None]) -> Callable[[Parser], None]:
        _COMMANDS.append((run, give))
        return give

    return known


# --- what commands share --------------------------------------------------------------------------


def _model(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL", type=Path, help="what `sosmarkov fit` wrote")


def _json(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object, for scripts")


def _output(parser: Parser, text: str, *, required: bool = False) -> None:
    parser.add_argument("-o", "--output", metavar="FILE", type=Path, required=required, help=text)


def _reading(parser: Parser, columns: str = "the coordinates; all other numeric columns where not given") -> None:
    add = parser.add_argument
    add("--columns", metavar="X,Y", help=columns)
    add("--trajectory", metavar="ID", help="the column that tells trajectories apart; all rows are one where not given")
    add("--time", metavar="T", help="the column of times, numbers or dates: sorts rows, missing times become gaps")
    add("--wide", action="store_true", help="one row is a trajectory, with columns x_0,x_1,...,y_0,y_1,...")


def _controls(parser: Parser, text: str = "columns of controls, for a model that has them") -> None:
    parser.add_argument("--inputs", metavar="U,V", help=text)


def _start(parser: Parser) -> None:
    add = parser.add_argument
    add("--from", dest="start", metavar="X,Y", help="a known state to start from, 0.1,0.2 or x=0.1,y=0.2")
    add("--inputs", metavar="U|FILE", help="controls, for a model that has them: one that stays (0.5), or a file")


def _beliefs(parser: Parser) -> None:
    """What a table tells of beliefs, and where."""
    parser.add_argument(
        "--quantiles", metavar="Q,Q", default="0.05,0.25,0.5,0.75,0.95", help="default %(default)s; `none` is quickest"
    )
    _output(parser, "a table to write (.csv, .parquet, .npz); printed where not given")
    _json(parser)


# --- the commands ---------------------------------------------------------------------------------


@_command("demo.run")
def _demo(parser: Parser) -> None:
    """Simulate an oscillator, learn it, predict, compare with fresh simulation, draw.

      sosmarkov demo --out demo

    Takes a minute or two. Writes the data (CSV), the model, a figure and a report to the folder.
    """
    add = parser.add_argument
    add("--out", type=Path, default=Path("demo"), metavar="FOLDER", help="where to write; default %(default)s")
    add("--count", type=int, default=1000, metavar="N", help="trajectories to learn from; default %(default)s")
    add("--size", type=int, default=16, metavar="N", help="basis functions; default %(default)s")
    add("--steps", type=int, default=800, metavar="N", help="training steps; default %(default)s")


@_command("fit.run")
def _fit(parser: Parser) -> None:
    """Learn a model from a data file.

      sosmarkov fit runs.csv --trajectory id --time t --columns x,y -o model.sosm
      sosmarkov fit day.parquet --time when --inputs heating -o model.sosm --set size=24 steps=4000
      sosmarkov fit log.csv --form lattice --circular heading --bounds "level=0:" -o model.sosm

    Reads CSV, TSV, Parquet, NPZ and NPY. One long series is learned by its pairs of neighbours, with all its
    states as possible starts. Ctrl-C keeps the best model so far.
    """
    parser.add_argument("data", metavar="DATA", type=Path, help="the data file")
    _output(parser, "the model file to write, ending in .sosm", required=True)
    _reading(parser)
    _controls(parser, "columns of controls: those of a row act on the step to the next row")
    add = parser.add_argument
    add("--form", metavar="FORM", help="lattice, gaussian or factor; chosen by held-out forecasts where not given")
    add(
        "--circular",
        metavar="X,Y=360",
        help="coordinates that are angles and wrap round, with their whole turn or without",
    )
    add("--bounds", metavar="X=LOW:HIGH", help='ends of coordinates that have some: "level=0:" or "share=0:1,level=0:"')
    add(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="settings of sosmarkov.fit: size=32 steps=4000"
    )
    add("--seed", type=int, default=0, metavar="N", help="the same seed gives the same model; default 0")
    add("--pairs", action="store_true", help="learn from pairs of neighbours, with all states as possible starts")
    add("--checkpoint", metavar="FILE", type=Path, help="keep the state of training here, every 50 steps")
    add("--resume", metavar="FILE", type=Path, help="go on from a checkpoint, with the same data and settings")
    add("--quiet", action="store_true", help="no progress bar and no summary")
    _json(parser)


@_command("ask.info")
def _info(parser: Parser) -> None:
    """What a model is, and how it was learned.

    sosmarkov info model.sosm
    """
    _model(parser)
    parser.add_argument(
        "--check", action="store_true", help="also measure how exactly it is normalised, and its long run"
    )
    _json(parser)


@_command("ask.propagate")
def _propagate(parser: Parser) -> None:
    """Predict: mean, standard deviation and quantiles of every coordinate at every step.

    sosmarkov propagate model.sosm --steps 10 -o beliefs.parquet
    sosmarkov propagate model.sosm --steps 10 --from x=0.1,y=-0.2
    """
    _model(parser)
    parser.add_argument("--steps", type=int, required=True, metavar="K", help="how far ahead")
    _start(parser)
    _beliefs(parser)


@_command("ask.probability")
def _probability(parser: Parser) -> None:
    """The probability that the state lies in a box.

      sosmarkov probability model.sosm --step 5 --box "x=0:1,y=-inf:2"
      sosmarkov probability model.sosm --step 5 --box "x=0:1" --stay

    What the box does not name is open.
    """
    _model(parser)
    parser.add_argument("--step", type=int, required=True, metavar="K", help="at which step")
    parser.add_argument("--box", required=True, metavar="X=LOW:HIGH,...", help="the box, by names of coordinates")
    over = parser.add_mutually_exclusive_group()
    over.add_argument("--stay", action="store_true", help="in the box at all of the steps 1 to K")
    over.add_argument("--reach", action="store_true", help="in the box at one of the steps 1 to K, or more")
    parser.words += ["--stay", "--reach"]
    _start(parser)
    _json(parser)


@_command("readings.run")
def _filter(parser: Parser) -> None:
    """Beliefs given readings: mean, standard deviation and quantiles at every step.

      sosmarkov filter model.sosm readings.csv --sensor "x~0.1" -o posterior.parquet
      sosmarkov filter model.sosm log.csv --time t --sensor "x=gps_x~0.5,y=gps_y~0.5" --smooth -o posterior.csv

    A sensor reads a coordinate with normal noise: x~0.1 from the column x, x=gps~0.1 from the column gps. An empty
    cell is a missing reading. The first row belongs to the initial state.
    """
    _model(parser)
    add = parser.add_argument
    add("data", metavar="OBS", type=Path, help="the file of readings, one row a step")
    add(
        "--sensor",
        metavar="X~STD,...",
        help="what is read and how noisy; not needed where the model learned its sensor",
    )
    add("--smooth", action="store_true", help="given all readings, later ones too")
    _reading(parser, columns="columns of readings, for a model that learned its sensor")
    _controls(parser)
    _beliefs(parser)


@_command("report.run")
def _report(parser: Parser) -> None:
    """A page with figures of a model, and how well it fits data.

    sosmarkov report model.sosm --data runs.csv --trajectory id --time t -o report.html
    """
    _model(parser)
    parser.add_argument(
        "--data", metavar="DATA", type=Path, help="data to compare with, best not those it learned from"
    )
    _output(parser, "the page to write, ending in .html", required=True)
    _reading(parser, columns="the coordinates, in the model's order; by the model's names where not given")
    _controls(parser)


@_command("bench.run")
def _bench(parser: Parser) -> None:
    """Experiments: list them, run one, show the table.

      sosmarkov bench list
      sosmarkov bench run NAME --profile quick
      sosmarkov bench table

    They are a package of their own: `pip install ./bench` in a clone of the repository.
    """
    parser.add_argument("words", nargs="...", metavar="ACTION", help="`sosmarkov bench ACTION --help` tells more")
