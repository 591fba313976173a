"""Variables that turn a kernel's programs away from the user's home."""

from support.kernels import spec

from freeact_sub.config.schema import KernelConfig
from freeact_sub.kernels import AuditSettings
from freeact_sub.kernels.launch import LIBRARY_FOLDERS, make_private_folders, private_environment
from freeact_sub.kernels.wall.sandbox import policy_for


def names_for(home, private, *, audit=None, mode="ask", **environment):
    kernel = spec(
        home, audit=audit, sandbox=policy_for(mode, KernelConfig(), home), environment={"HOME": str(home), **environment}
    )
    return private_environment(kernel, private).keys() - {"TMPDIR"}


def test_a_library_that_the_user_has_not_set_up_writes_to_the_kernels_own_folder(tmp_path):
    asked = AuditSettings()
    assert names_for(tmp_path, tmp_path / "tmp", mode="full") == set(), "nobody is asked"
    assert names_for(tmp_path, tmp_path / "tmp", audit=asked) == LIBRARY_FOLDERS.keys()
    (tmp_path / ".config/matplotlib").mkdir(parents=True)
    assert "MPLCONFIGDIR" in names_for(tmp_path, tmp_path / "tmp", audit=asked), "an empty folder says nothing"
    (tmp_path / ".config/matplotlib/matplotlibrc").touch()
    assert "MPLCONFIGDIR" not in names_for(tmp_path, tmp_path / "tmp", audit=asked)
    assert "DASK_CONFIG" not in names_for(tmp_path, tmp_path / "tmp", audit=asked, DASK_CONFIG="/etc/dask")
    assert names_for(tmp_path, tmp_path / "tmp", mode="auto") > LIBRARY_FOLDERS.keys(), "a wall keeps the home from it"


def test_a_kernel_is_lent_what_matplotlib_knows_of_the_fonts_and_nothing_that_it_obeys(tmp_path):
    cache, folder = tmp_path / ".cache/matplotlib", tmp_path / "tmp/matplotlib"
    cache.mkdir(parents=True)
    for name in ("fontlist-v390.json", "matplotlibrc"):
        (cache / name).write_text("{}")
    make_private_folders({"TMPDIR": str(tmp_path / "tmp"), "MPLCONFIGDIR": str(folder)}, tmp_path)
    assert [path.name for path in folder.iterdir()] == ["fontlist-v390.json"]
