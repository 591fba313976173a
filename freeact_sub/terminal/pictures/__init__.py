"""Pictures in the terminal: how it draws them (`ways`), and what is written for that (`Pictures`).

That is made by a program of its own (`encoder`): a picture comes from code of an agent, and whatever it does to who reads
it, it does not do to the host.
"""
