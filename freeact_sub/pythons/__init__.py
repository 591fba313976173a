"""The Pythons of this machine: their versions and packages (`about`), and the project's own one (`project`).

`installed.py` runs in the Python that is asked: standard library only.
"""
