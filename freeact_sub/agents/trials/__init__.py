"""Tries a cell while a person is asked whether it may run, and tells what it did (docs/effects.md).

`room.py` knows which agents' cells can be tried and ends trials with them; `trial.py` runs one; `trial_host.py` answers
the requests of its code, and ends it at what must not happen unasked; `diffs.py` compares its copy of the workspace with the
workspace. The kernel's side is `kernels/guest/trial.py`, its wall `wall/of_trials.py` and `layer.seal`.
"""
