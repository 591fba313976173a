"""No file of ours over 400 lines: one that grows past that wants to be two things. No two tests' files of one name: pytest wants that."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

LIMIT = 400


def main() -> int:
    """Print the files that are too long, and the names that stand twice; the exit status tells whether there are any."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True
    )
    files = [path for name in listed.stdout.split() if (path := Path(name)).exists()]
    sizes = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    wrong = [f"{path}: {size} lines, {LIMIT} allowed" for path, size in sizes.items() if size > LIMIT]
    names = Counter(path.name for path in files if path.name.startswith("test_"))
    wrong += [f"{name}: {count} files, 1 allowed" for name, count in names.items() if count > 1]
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
