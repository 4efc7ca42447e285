"""The command line: `sosmarkov fit data.csv -o model.sosm`, and what can be asked of the model then."""

from sosmarkov.cli.main import main

__all__ = ["main"]
