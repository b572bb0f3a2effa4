"""What there is to choose from, by name."""

QHD_METHODS = ("fedqhd", "independent-qhd", "truncated-fedavg-qhd", "oracle-qhd")
DQN_METHODS = ("fedavg-dqn", "distilled-feddqn", "oracle-dqn")
SETTINGS = ("homogeneous", "heterogeneous")
LEARNERS = ("replay", "online", "least-squares")
ENGINES = ("auto", "local", "process", "flower")
AGGREGATORS = ("auto", "mean", "median", "trimmed-mean", "geometric-median", "multi-krum")
ENCODERS = ("fourier", "complex", "symbolic")
ATTACKS = ("sign-flip", "scaled", "noise", "constant", "collude", "stale", "lazy")
