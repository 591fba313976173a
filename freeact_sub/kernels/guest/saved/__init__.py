"""How a kernel writes its variables into files, and reads them again. Sent into every kernel as source.

`snapshots` is asked by the host and forks; the fork writes (`write`): which variables share objects (`groups`), how values
are pickled (`borrowed_pickler`), and what their pickles call when they are read (`live`). A new kernel reads the files
(`read`). `imported` knows the modules that they need.
"""
