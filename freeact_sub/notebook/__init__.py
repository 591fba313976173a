"""Agents in a notebook: `%load_ext freeact_sub.notebook`, then `%%agent` cells, or `await display_run(agent, prompt)`."""

from freeact_sub.notebook.display import display_run
from freeact_sub.notebook.magic import load_ipython_extension, unload_ipython_extension

__all__ = ["display_run", "load_ipython_extension", "unload_ipython_extension"]
