"""Handles the requests of code in an agent's kernel; each module handles some of the methods.

Code in the kernel wrote everything in a request, so none of it is trusted: what a request may do is decided from what the
host itself knows about the agent.
"""
