"""How a kernel writes its variables into files, and reads them again. Sent into every kernel as source.

`snapshots` is asked by the host and forks; the fork writes, and a new kernel reads (`files`): which variables share objects
(`groups`), how values are pickled (`..values`), and what of single ones (`borrowed_pickler`). `imported` knows the modules
that they need.
"""
