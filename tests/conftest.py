"""What many tests need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).resolve().parent.parent
os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")
# Several tests run at a time: threads of BLAS, here and in the processes that tests start, would only wait for cores.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

TOGETHER = ("test_tls.py", "test_site.py", "test_node.py", "test_synthetic.py")
"""Files whose tests share a fixture that takes ten seconds or more."""


class Scheduling(LoadScopeScheduling):
    """Deals tests out one by one, and the files above whole, so that one process makes each costly fixture once.

    Marks for xdist's ``loadgroup`` would say it better, but xdist 3.8 does not see them with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if file.endswith(TOGETHER) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    return Scheduling(config, log)


LONG = ("test_docs.py", "test_processes.py", "test_secure_processes.py", "test_recovery.py", "test_faults.py")
"""Files of tests that take a minute or more. They come first: last, one alone would hold up the end."""


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.path.name not in LONG)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder with real data; tests that need it are skipped where it is absent."""
    folder = Path(os.environ.get("PERDL_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set PERDL_DATA")
    return folder


@pytest.fixture(scope="session")
def mnist(shared_data: Path) -> Path:
    """Folder of the four IDX files."""
    folder = shared_data / "mnist"
    if not folder.is_dir():
        pytest.skip(f"no MNIST at {folder}; set PERDL_DATA")
    return folder


@pytest.fixture(scope="session")
def cases(shared_data: Path) -> Path:
    """Folder of small inputs that failed once; tests that need it are skipped where it is absent."""
    folder = shared_data.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"no cases at {folder}; set PERDL_DATA")
    return folder
