"""The Pythons of this machine: what one is and has (`about`), and which one is the project's (`project`).

`installed.py` runs in the Python that is asked: standard library only.
"""
