"""Environments, the scaling of their states, and the anchor states that all clients share."""
