"""The Flower engine: clients on other machines or in Flower's simulation.

Nothing in this package knows how clients and environments are made.
"""

from __future__ import annotations

import os

# Flower and Ray read these variables when they are first imported. They disable telemetry, update checks and
# installation at run time. Despite its name, RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 makes Ray listen on loopback only.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
