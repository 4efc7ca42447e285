"""`python -m sosmarkov.cli`."""

import sys

from sosmarkov.cli.main import main

sys.exit(main())
