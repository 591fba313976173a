"""A program: `encoder WAY COLUMNS ROWS CELL_WIDTH CELL_HEIGHT` turns a picture into text that makes a terminal draw it.

The text begins in the first column of a row and ends in the first column of the row below the picture, so that
the code that prints it need not know the picture's height.
"""

import base64
import io
import os
import resource
import sys
from typing import Final

from PIL import Image

MAX_PIXELS: Final = 50_000_000
MAX_MEMORY: Final = 2**30
CPU_SECONDS: Final = 10
CHUNK: Final = 4096
"""Bytes of a piece in kitty's protocol."""


def main() -> int:
    """Return the exit status; a picture that cannot be read ends it by an error."""
    way, *numbers = sys.argv[1:]
    columns, rows, width, height = map(int, numbers)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow refuses the double of it
    picture: Image.Image = Image.open(io.BytesIO(sys.stdin.buffer.read()), formats=("PNG", "JPEG", "GIF", "WEBP"))
    picture.load()
    wide, high = fitted(picture.width / width, picture.height / height, columns, rows)
    if way in ("blocks", "sixel"):
        shown = _by_library(way, picture, (wide, high), (width, height))
    else:
        picture.thumbnail((wide * width, high * height))
        held = io.BytesIO()
        picture.save(held, "PNG")
        drawn = _kitty(held.getvalue(), wide, high) if way == "kitty" else _iterm2(held.getvalue(), wide, high)
        # the rows are made first: at the bottom of a terminal they scroll, and then the picture does not
        shown = "\n" * high + f"\x1b[{high}A\x1b7{drawn}\x1b8\x1b[{high}B"
    sys.stdout.write(shown)
    return 0


def fitted(wide: float, high: float, columns: int, rows: int) -> tuple[int, int]:
    """Return the columns and rows of a picture of this size, in characters: shrunk as far as needed, never enlarged."""
    scale = min(1.0, columns / wide, rows / high)
    return max(1, min(columns, round(wide * scale))), max(1, min(rows, round(high * scale)))


def _kitty(content: bytes, columns: int, rows: int) -> str:
    text = base64.b64encode(content).decode()
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
    first = f"a=T,f=100,q=2,C=1,c={columns},r={rows},"
    return "".join(
        f"\x1b_G{first if number == 0 else ''}m={int(number < len(chunks) - 1)};{chunk}\x1b\\"
        for number, chunk in enumerate(chunks)
    )


def _iterm2(content: bytes, columns: int, rows: int) -> str:
    text = base64.b64encode(content).decode()
    size = f"width={columns};height={rows};preserveAspectRatio=1;size={len(content)}"
    return f"\x1b]1337;File=inline=1;{size}:{text}\x07"


def _by_library(way: str, picture: Image.Image, size: tuple[int, int], cell: tuple[int, int]) -> str:
    # it takes these for the size of a character, since what it writes to is no terminal
    os.environ["TEXTUAL_CELL_WIDTH"], os.environ["TEXTUAL_CELL_HEIGHT"] = map(str, cell)
    # these take four times as long as all other work here
    from rich.console import Console  # noqa: PLC0415
    from textual_image.renderable import HalfcellImage, SixelImage  # noqa: PLC0415

    text = io.StringIO()
    console = Console(file=text, force_terminal=True, color_system="truecolor", width=size[0], legacy_windows=False)
    console.print((SixelImage if way == "sixel" else HalfcellImage)(picture, *size), end="")
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
