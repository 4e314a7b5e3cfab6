"""Thread counts that the system grants, and the policy of the pool that waits between calls.

Imported before the first extension, so before libgomp: it reads its environment once, when it loads.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# How long an idle worker spins before it sleeps, in libgomp's turns (about 3 to 10 ns each).  libgomp's own choice
# spins for milliseconds and starves another library's pool on the same cores; none at all makes each call wake
# sleepers.  docs/threads.md has the measurements.
SPIN_COUNT = "20000"


@contextmanager
def spin_policy() -> Iterator[None]:
    """Set libgomp's spin count while the extensions load, unless the user has a policy in the environment.

    The variable is taken back afterwards: child processes and other libraries see the environment as it was.
    """
    if "GOMP_SPINCOUNT" in os.environ or "OMP_WAIT_POLICY" in os.environ:
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = SPIN_COUNT
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def cgroup_quota(proc: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> int:
    """Whole processors that the control group's CPU quota grants, at least 1; 0 when there is no quota.

    Version 2 keeps "quota period" in cpu.max, version 1 in two files; a group inherits the least of its ancestors'.
    """
    try:
        lines = Path(proc).read_text().splitlines()
    except OSError:
        return 0
    least: float | None = None
    for line in lines:
        _, controllers, path = (line.split(":", 2) + ["", ""])[:3]
        if controllers == "":
            base, read = Path(root), _quota_v2
        elif "cpu" in controllers.split(","):
            base, read = Path(root) / "cpu", _quota_v1
        else:
            continue
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            share = read(group)
            if share is not None and (least is None or share < least):
                least = share
            if group == base:
                break
    return 0 if least is None else max(1, int(least))


def _quota_v2(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _quota_v1(group: Path) -> float | None:
    try:
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
        return None if quota <= 0 else quota / period
    except (OSError, ValueError, ZeroDivisionError):
        return None
