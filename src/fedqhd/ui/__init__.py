"""The user interface: the commands, the progress board of a study, and the page of `fedqhd watch`."""
