"""The modules that saved variables are of: what has become of them since, as the host finds it."""

import os
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from freeact_sub.kernels.guest.saved.imported import candidates, digest_of

Path = Annotated[str, Field(max_length=10_000)]
Name = Annotated[str, Field(max_length=1000)]


class Modules(BaseModel):
    """What `guest/saved/imported.py` tells of the modules outside of Python's own folders."""

    model_config = ConfigDict(extra="forbid", strict=True)

    files: dict[Path, Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")]]
    """Digests of what was imported, or could have been. Empty: it was no file."""
    folders: dict[Path, list[Name]]
    """The names that were looked up in each folder."""

    def changed(self) -> str:
        """What other code an import would run now, in a few words, for `LeftOut.more`. Empty: it would run the same."""
        for path, digest in self.files.items():
            if digest_of(path) != digest:
                return f"it runs {path}, which has changed since" if os.path.lexists(path) else f"{path} is gone since"
        for folder, names in self.folders.items():
            for path in sorted(candidates(folder, set(names))):
                if path not in self.files:
                    return f"it runs {path}, which was not there"
        return ""
