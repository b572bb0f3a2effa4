"""`python -m fedqhd`: the command line, for whoever has an interpreter but no path to its scripts."""

import sys

from fedqhd.ui.cli import main

sys.exit(main())
