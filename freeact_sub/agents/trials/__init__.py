"""Tries a cell while a person is asked whether it may run, and tells what it did (docs/effects.md).

`trial.py` runs trials, and ends them with their agent; `trial_host.py` answers
the requests of its code, and ends it at what must not happen unasked; `diffs.py` compares its copy of the workspace with the
workspace. The kernel's side is `kernels/guest/trial.py`, its wall `wall/of_trials.py` and `layer.seal`.
"""
