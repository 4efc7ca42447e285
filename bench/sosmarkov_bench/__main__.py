"""`python -m sosmarkov_bench`: the same as `sosmarkov bench`."""

import sys

from sosmarkov.cli.main import main

sys.exit(main(["bench", *sys.argv[1:]]))
