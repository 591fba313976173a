"""Pictures in the terminal: its way of drawing them (`ways`), and the text that makes it draw one (`Pictures`).

A program of its own (`encoder`) makes that text: a picture comes from an agent's code, and a harmful one then reaches
that program, not the host.
"""
