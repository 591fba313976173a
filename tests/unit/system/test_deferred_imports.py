"""Packages whose imports wait: whoever looks into them finds what is always there."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from freeact_sub.system import deferred_imports

FILES = {
    "shop/__init__.py": "",
    "shop/types/__init__.py": (
        "from __future__ import annotations\n"
        "import os as _os\n"
        "from .prices import Price as Price, as_text\n"
        "from .sale.offers import (Offer as Bargain,)\n"
    ),
    "shop/types/prices.py": "class Price: pass\ndef as_text(): return 'one'\n",
    "shop/types/rest.py": "",
    "shop/types/sale/__init__.py": "from .offers import Offer\n__all__ = ['Offer']\n",
    "shop/taxes/__init__.py": "from .rates import *\n",
    "shop/taxes/rates.py": "def tax(price, rate=2): return price * rate\nRATES = [2, 3]\n",
    "shop/types/sale/offers.py": "from shop.types import Price\nclass Offer(Price): pass\n",
}

IRIS = """
import sys
from freeact_sub.system.deferred_imports import import_lean
checker = import_lean("jsonschema").FormatChecker()
print("lark" in sys.modules)
print(checker.conforms("http://zoë.example", "iri"), checker.conforms("zoë example", "iri"))
print("lark" in sys.modules)
"""

GARBAGE = """
import gc, sys
from freeact_sub.system.deferred_imports import lean_imports
if "frozen" in sys.argv:
    gc.freeze()
class Node: pass
with lean_imports():
    if "nothing" not in sys.argv:
        import colorsys
    node = Node()
old = any(one is node for one in gc.get_objects(generation=2))
print(gc.isenabled(), old, gc.get_freeze_count() > 2000)
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(deferred_imports, "REEXPORTING", ("shop.types",))
    monkeypatch.setattr(deferred_imports, "CALLED_SELDOM", {"shop.taxes": "tax"})
    yield deferred_imports.import_lean("shop.types")
    for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
        del sys.modules[name]


def imported() -> set[str]:
    return {name.removeprefix("shop.") for name in sys.modules if name.startswith("shop.")}


def test_a_name_imports_the_module_in_which_it_is_and_nothing_else(shop):
    assert imported() == {"types"}
    assert shop.as_text() == "one"
    assert shop.Price is shop.Price is sys.modules["shop.types.prices"].Price
    assert imported() == {"types", "types.prices"}
    assert issubclass(shop.Bargain, shop.Price)


def test_all_names_are_found_by_an_import_of_all_and_by_dir(shop):
    found: dict = {}
    exec("from shop.types import *", found)
    assert {"Price", "as_text", "Bargain"} <= set(found) & set(dir(shop))
    assert importlib.import_module("shop.types.sale").__all__ == ["Offer"]


def test_a_module_of_the_package_is_its_attribute_and_what_is_nowhere_is_none(shop):
    assert shop.rest is importlib.import_module("shop.types.rest")
    with pytest.raises(AttributeError, match="module 'shop.types' has no attribute 'Nothing'"):
        _ = shop.Nothing
    assert not hasattr(shop, "_private")


@pytest.mark.parametrize(
    "first", ["from shop.taxes import tax as use; use(1, rate=3)", "import shop.taxes as use; use.RATES"]
)
def test_a_package_that_is_called_seldom_runs_its_code_at_the_first_call_or_look_up(shop, first):
    from shop.taxes import tax  # type: ignore[import-not-found]

    assert "taxes.rates" not in imported()
    exec(first)
    assert sys.modules["shop.taxes"].tax is sys.modules["shop.taxes.rates"].tax
    assert [tax(2), tax(2, rate=3)] == [4, 6]
    assert not hasattr(sys.modules["shop.taxes"], "nothing")


def test_a_package_that_cannot_run_its_code_says_so_at_each_call(shop, tmp_path):
    rates = tmp_path / "shop/taxes/rates.py"
    right = rates.read_text()
    rates.write_text("import shop.nowhere\n")
    from shop.taxes import tax

    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match=r"shop\.nowhere"):
            tax(2)
    rates.write_text(right)
    importlib.invalidate_caches()
    assert tax(2) == 4


def test_jsonschema_makes_no_parser_of_iris_until_it_looks_at_one():
    done = subprocess.run([sys.executable, "-P", "-c", IRIS], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["False", "True", "False", "True"]


@pytest.mark.parametrize(
    ("options", "printed"), [((), "True True False"), (("nothing",), "True False False"), (("frozen",), "True False True")]
)
def test_what_is_imported_counts_as_old_at_once_unless_a_program_has_frozen_something(options, printed):
    command = [sys.executable, "-P", "-c", GARBAGE, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == printed
