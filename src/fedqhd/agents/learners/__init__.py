"""How a client learns: one file for each learner."""
