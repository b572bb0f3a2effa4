"""The seven methods of the paper, one file each. The paper's mixed federation is FedQHD with some DQN clients."""
