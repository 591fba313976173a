"""The syntax trees of the package, which tests of its structure share: to parse them takes a second."""

import functools
import gc

from support.programs import ROOT

from benchmarks.structure import Source


@functools.cache
def source() -> Source:
    """The package as it is."""
    package = Source(ROOT)
    gc.disable()  # it would look through millions of nodes again and again, which takes longer than to parse them
    try:
        assert package.trees
    finally:
        gc.freeze()
        gc.enable()
    return package


@functools.cache
def borrowed() -> dict[str, set[str]]:
    """By module, the private names of other libraries that it uses."""
    return source().borrowed()
