"""Draws the events of a run in a terminal or a pipe, and asks a person for approvals."""
