"""The public Python functions. The command line is a thin layer over them."""
