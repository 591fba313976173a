"""A conversation in plain lines: where a terminal cannot move its cursor, and for those who hear what it prints.

Nothing that is printed changes afterwards. There are no colours, boxes and marks; agents have names, and questions are
answered by typed words.
"""
