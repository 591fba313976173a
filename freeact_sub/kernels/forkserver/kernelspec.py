"""`install_kernelspec`: lets Jupyter programs of this machine start kernels by our fork server."""

import json
from pathlib import Path
from typing import Any, Final, get_args

from freeact_sub.errors import ConfigError
from freeact_sub.modes import Mode

NAME: Final = "freeact"
PROVISIONER: Final = "freeact-fork"
WITHOUT_WALL: Final = "none"
WALLS: Final = (WITHOUT_WALL, *get_args(Mode))


def install_kernelspec(
    folder: Path, python: str, *, name: str = NAME, wall: str = WITHOUT_WALL, network: bool = False
) -> Path:
    """Writes `kernel.json`.

    Args:
        folder: The parent of Jupyter's `kernels`, such as the prefix's `share/jupyter`.
        python: The kernels' Python; it needs this package.
        name: The name of the kernelspec.
        wall: The mode whose wall is around each kernel, for agents at a gateway. `none`: there is none, for the notebooks
            of a person.
        network: Kernels in `auto` have the network.

    Returns:
        The file.

    Raises:
        ConfigError: It cannot be written.
    """
    config: dict[str, Any] = {} if wall == WITHOUT_WALL else {"wall": {"mode": wall, "network": network}}
    content = {
        "argv": [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python (freeact-sub)" if wall == WITHOUT_WALL else f"Python (freeact-sub, walled: {wall})",
        "language": "python",
        "metadata": {"kernel_provisioner": {"provisioner_name": PROVISIONER, "config": config}},
    }
    path = folder / "kernels" / name / "kernel.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"the kernelspec cannot be written to {path} ({error.strerror}): see --prefix, --user") from error
    return path
