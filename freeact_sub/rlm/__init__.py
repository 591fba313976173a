"""Recursive language models: a model that reads a long context by code, and calls models on the parts of it.

The context is a variable in a kernel; the prompts of the models never hold it. See "Recursive Language Models" by Alex L.
Zhang, Tim Kraska and Omar Khattab, 2025 (https://arxiv.org/abs/2512.24601), whose names code in the kernel finds.
"""

from freeact_sub.rlm.rlm import RLM, Completion

__all__ = ["RLM", "Completion"]
