"""The fork server: `server.py` runs beside kernels and loads the other modules that do; the rest are the host's end.

`server.py`, `prebuild.py`, `borrowed_streams.py`, `borrowed_app.py`, `brancher.py` and `detach.py` run in the
kernels' Python: standard library and IPython only. None is part of a package there.
"""
