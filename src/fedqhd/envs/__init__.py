"""Environments, the public scaling of their states, and the states that all clients share."""
