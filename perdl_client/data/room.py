"""Whether a client's samples fit into the memory that is available: ``data.in_memory = "auto"``."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_SHARE = 0.6
"""Share of the available memory that samples may take."""

_COPIES = 2
"""Copies of the prepared samples that a run in memory may need at once, besides what the file holds."""

_SMALL = 64
"""A file that is so many times smaller than the room for it fits, whatever its numbers take once they are unpacked."""


def available_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> float:
    """Return how many bytes this process can still take: of the machine, its control groups and its own limits.

    Parameters
    ----------
    proc, groups : Path
        Where the system tells of processes and control groups.

    Returns
    -------
    float
        Infinite where the system tells nothing.
    """
    return max(0.0, min((math.inf, *_machine(proc), *_groups(proc, groups), *_limits(proc))))


def fits(in_file: float, prepared: float, clients: int = 1) -> bool:
    """Return whether samples fit into memory.

    Parameters
    ----------
    in_file : float
        Bytes of the file's numbers, once they are read.
    prepared : float
        Bytes of the samples as a client learns from them.
    clients : int
        Clients that share the memory, each with such a file.
    """
    return in_file + _COPIES * prepared <= _SHARE * available_memory() / max(clients, 1)


def is_small(path: Path, clients: int = 1) -> bool:
    """Return whether a file or folder surely fits, without opening it.

    Parameters
    ----------
    path : Path
        File or folder of a client.
    clients : int
        Clients that share the memory.
    """
    with suppress(OSError):
        files = path.iterdir() if path.is_dir() else [path]
        return fits(_SMALL * sum(file.stat().st_size for file in files), 0, clients)
    return True  # reading it tells what is wrong


def _machine(proc: Path) -> Iterator[float]:
    with suppress(OSError, ValueError, IndexError):
        lines = (proc / "meminfo").read_text().splitlines()
        yield 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
        return
    with suppress(AttributeError, ValueError, OSError):  # without /proc, as on macOS: the machine's memory
        yield float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


def _groups(proc: Path, root: Path) -> Iterator[float]:
    """Yield what is left of the limit of each control group that the process is in, and of those above."""
    with suppress(OSError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, place = line.split(":", 2)
            if controllers == "":
                base, names = root, ("memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            else:
                continue
            here = base / place.strip("/")
            for group in (here, *here.parents):  # in a container, the place is that of the host, and may not be there
                if not group.is_relative_to(base):
                    break
                with suppress(OSError, ValueError):
                    limit = int((group / names[0]).read_text())
                    used = int((group / names[1]).read_text())
                    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                    yield float(limit - used + int(stat.get(names[2], 0)))  # cached files give way


def _limits(proc: Path) -> Iterator[float]:
    """Yield what is left of the process's own limits."""
    try:
        import resource
    except ImportError:  # Windows
        return
    used: dict[str, int] = {}
    with suppress(OSError, ValueError, IndexError):
        for line in (proc / "self" / "status").read_text().splitlines():
            if line.startswith(("VmSize:", "VmData:")):
                used[line.split(":")[0]] = 1024 * int(line.split()[1])
    for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
        most = resource.getrlimit(limit)[0]
        if most != resource.RLIM_INFINITY:
            yield float(most - used.get(name, 0))
