"""Earlier states of the files in a workspace, which git stores: for undo, forks and comparisons."""
