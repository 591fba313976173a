"""Conversations that outlive their terminal.

Three processes stand where one stood. The *terminal* (`client.py`) is what the shell has started: it passes on bytes, and
ends with its window. The *host* (`host.py`) is a small process of its own session: it has the pseudo-terminal, and takes
terminals over a socket, one at a time. The *program* runs in the pseudo-terminal as it would run in a real one, and tells
its host by a `Link` what it does. So attached or not, there is one program, with all its keys and commands.

The host is no thread of the program: it answers while the program is busy or has died, and what the program has written
last reaches the terminal. All three are forks of one start, before its slow imports. `sockets.py` is what they say.
"""
