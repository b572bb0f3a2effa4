"""The server of FedQHD, which also records when each round ends."""

import time

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedqhd.deploy.server import options, serve
from fedqhd.runs.callback import Callback

app = ServerApp()


class Clock(Callback):
    """Appends the time to a file after every round."""

    def __init__(self, path):
        self.path = path

    def on_round(self, training, replies):
        with open(self.path, "a") as f:
            f.write(f"{time.monotonic()}\n")


@app.main()
def main(grid: Grid, context: Context) -> None:
    serve(options(context.run_config), grid, Clock(context.run_config["marks"]))
