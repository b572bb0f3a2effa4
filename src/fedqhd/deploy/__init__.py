"""Federations across machines: the server's program, the clients' program, and the commands that start them."""
