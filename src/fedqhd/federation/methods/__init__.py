"""The methods, one file each: the seven of the paper. FedQHD with DQN clients is the mixed federation."""
