"""The least that Flower can do in a round: a message to each node, which answers with nothing at once."""

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
