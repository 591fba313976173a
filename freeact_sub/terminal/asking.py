"""Who answers approval requests where there is no input line: everything is approved, denied, or asked line by line."""

import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol, Self, TextIO
