"""The wall around kernels: `sandbox.py` decides at the host on their reach; `wall.py` builds it in the kernel's process.

`wall.py`, `view.py` and `seccomp.py` run there: standard library only. None is part of a package there.
"""
