"""The program that a kernel's process starts with: it runs ipykernel without importing from the workspace first.

`python -m ipykernel_launcher` would put the working folder on the path before its own imports, where code behind a wall
may have written modules of these names. (`python -P` exists since Python 3.11 only.) `python -c` does not do either:
CPython 3.13.0 looks for its working folder at each missing attribute of a module, and fails when that folder is removed.
Imports nothing of the package: `kernel.python` may be another Python, which does not have it.
"""

import sys

if __name__ == "__main__":
    own = sys.path[0]
    sys.path[:] = filter(None, sys.path[1:])  # the first is this file's folder; IPython puts the working folder there
    import runpy

    if sys.argv[1].startswith("{"):  # modules that this Python does not have: the host has looked
        runpy.run_path(f"{own}/lender.py")["install"](sys.argv.pop(1))
    runpy.run_module("ipykernel_launcher", run_name="__main__", alter_sys=True)
