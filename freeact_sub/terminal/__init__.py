"""The events of a run in a terminal or a pipe, and questions to a person."""
