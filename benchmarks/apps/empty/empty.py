"""An app that does the least possible in a round: each node gets an empty message and replies with an empty one."""

import time

from flwr.app import Context, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server = ServerApp()
client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    return Message(RecordDict(), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    run = context.run_config
    while len(nodes := list(grid.get_node_ids())) < run["clients"]:
        time.sleep(0.1)
    for k in range(run["rounds"]):
        grid.send_and_receive([Message(RecordDict(), node, MessageType.TRAIN, group_id=str(k)) for node in nodes])
        with open(run["marks"], "a") as f:
            f.write(f"{time.monotonic()}\n")
