"""Run the command line as `python -m fedqhd`, which works even if the `fedqhd` script is not on the PATH."""

import sys

from fedqhd.ui.cli import main

sys.exit(main())
