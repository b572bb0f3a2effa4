"""Compiled kernels are kept from one process to the next, and compiled again after an edit to any file of the package.

The tests work on a copy of the package. `values` stands for all kernels: it compiles quickly, and it calls `two_dots`
from another file.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from numba.extending import is_jitted

from fedqhd import kernels
from fedqhd.kernels import cache

SCRIPT = """
import json
import multiprocessing
import sys
import numpy as np
from fedqhd import kernels

def call(_=None):
    Q = np.empty((1, 2))
    kernels.values(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0]]), Q)
    stats = kernels.values.stats
    hits, misses = sum(stats.cache_hits.values()), sum(stats.cache_misses.values())
    return {"Q": Q[0].tolist(), "hits": hits, "misses": misses}

if __name__ == "__main__":
    if sys.argv[1] == "folder":
        print(json.dumps(kernels.values.stats.cache_path))
    elif sys.argv[1] == "call":
        print(json.dumps(call()))
    else:
        with multiprocessing.get_context(sys.argv[1]).Pool(1) as pool:
            print(json.dumps(pool.map(call, [None])[0]))
"""
COMPILED = {"Q": [11.0, 17.0], "hits": 0, "misses": 1}
LOADED = {"Q": [11.0, 17.0], "hits": 1, "misses": 0}


@pytest.fixture
def copy(tmp_path):
    """A copy of the kernels that may be edited; they need nothing else of fedqhd."""
    folder = tmp_path / "copy" / "fedqhd" / "kernels"
    shutil.copytree(Path(kernels.__file__).parent, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder.parent / "__init__.py").touch()
    (tmp_path / "script.py").write_text(SCRIPT)
    return folder


def run(copy: Path, what: str = "call", **environment: str):
    """In a new process on the copy: `call` the kernel, call it in a worker (`fork`, `spawn`), or name its `folder`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    environment = {**kept, "PYTHONPATH": str(copy.parents[1]), "PYTHONDONTWRITEBYTECODE": "1", **environment}
    command = [sys.executable, str(copy.parents[2] / "script.py"), what]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def edit(path: Path, old: str, new: str) -> None:
    """Replace one line, but keep the size and the time of the file, so that only its contents show the change."""
    before, text = path.stat(), path.read_text()
    assert text.count(old) == 1
    assert len(old) == len(new)
    path.write_text(text.replace(old, new))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def edit_callee(copy: Path) -> None:
    """Let `two_dots` return -x . y instead of x . y."""
    edit(copy / "products.py", "        xy += t * y[d]", "        xy -= t * y[d]")


def test_an_edit_to_a_callee_in_another_file_compiles_its_caller_again(copy, tmp_path):
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(copy, **settings) == COMPILED
    assert run(copy, **settings) == LOADED
    edit_callee(copy)
    assert run(copy, **settings) == {"Q": [-11.0, 17.0], "hits": 0, "misses": 1}
    assert run(copy, **settings) == {"Q": [-11.0, 17.0], "hits": 1, "misses": 0}


def test_without_the_stamp_of_the_package_a_stale_kernel_is_loaded(copy, tmp_path):
    """A control: numba's own stamp covers only the file of the caller."""
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    edit(copy / "cache.py", "_PACKAGE_STAMP = _package_stamp()", "_PACKAGE_STAMP = b'is constant'  ")
    assert run(copy, **settings) == COMPILED
    edit_callee(copy)
    assert run(copy, **settings) == LOADED


def test_an_index_of_other_sources_is_not_even_read(copy, tmp_path):
    """It may name a type that has been renamed since; here, it is cut off behind its version."""
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(copy, **settings) == COMPILED
    (index,) = (tmp_path / "cache").rglob("*values*.nbi")
    with index.open("rb") as f:
        pickle.load(f)
        version = index.read_bytes()[: f.tell()]
    index.write_bytes(version + b"no pickle")
    edit_callee(copy)
    assert run(copy, **settings) == {"Q": [-11.0, 17.0], "hits": 0, "misses": 1}


def test_the_folder_is_the_one_that_numba_chooses(copy, tmp_path):
    settings = {"HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path / "home")}
    assert run(copy, "folder", **settings) == str(copy / "__pycache__")
    chosen = run(copy, "folder", **settings, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert Path(chosen).parent == tmp_path / "cache"
    (copy / "__pycache__").rmdir()
    (copy / "__pycache__").touch()  # no folder can be made here, as in an installation that is read-only
    assert tmp_path / "home" in Path(run(copy, "folder", **settings)).parents


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_forked_and_spawned_workers_share_the_cache(copy, tmp_path):
    settings = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    assert run(copy, "spawn", **settings) == COMPILED
    assert run(copy, "spawn", **settings) == LOADED
    assert run(copy, "fork", **settings) == LOADED


def test_every_kernel_has_this_cache():
    names = [path.stem for path in Path(kernels.__file__).parent.glob("[!_]*.py")]
    modules = [import_module(f"fedqhd.kernels.{name}") for name in names]
    compiled = {function for module in modules for function in vars(module).values() if is_jitted(function)}
    assert len(compiled) > 40
    assert {type(function._cache) for function in compiled} == {cache._PackageCache}
