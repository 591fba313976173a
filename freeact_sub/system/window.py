"""`WINDOW`: the terminal of this process in which a person reads what cells put out. Kernels hear its width."""

from collections.abc import Callable


class Window:
    """There is one at most. A program without a terminal leaves it as it is."""

    def __init__(self) -> None:
        self.columns: Callable[[], int] = lambda: 0
        """The columns that a line of output has; 0: it is not known."""


WINDOW = Window()
