"""Files of a kernel's variables: how they are written and read. Sent into every kernel as source.

The host asks `snapshots`, which forks; the fork writes, and a new kernel reads (`files`). `groups` knows which variables
share objects, `..values` pickles them, `borrowed_pickler` single objects, and `imported` knows the modules that they need.
"""
