"""Folders of the host that containerd, CNI and the kubelet use whatever their settings say.

In a cluster's mount namespace an empty file system in memory covers each, and vanishes with the
namespace. A folder has to exist to be covered: the last cluster that goes removes those that had to
be made. The same holds for the control group that containerd puts its containers in.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from cascade_cluster import locks
from cascade_cluster.commands import run

COVERED = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers")
# For the whole host, not for one user's data folder: the folders above are the host's.
STATE = Path("/run/cascade-operator")
MADE = STATE / "made-folders"
CONTROL_GROUPS = Path("/sys/fs/cgroup")


def container_groups() -> list[Path]:
    """containerd's control group: one, or one per controller with version 1 of control groups."""
    is_version_2 = (CONTROL_GROUPS / "cgroup.controllers").exists()
    roots = [CONTROL_GROUPS] if is_version_2 else sorted(CONTROL_GROUPS.glob("*/"))
    return [root / "k8s.io" for root in roots]


def prepare(inside: Sequence[str]) -> None:
    """Make and cover the folders, in the namespace that the given words lead into."""
    with locks.exclusive(STATE / "lock"):
        for folder in [*map(Path, COVERED), *container_groups()]:
            if not folder.exists():
                with MADE.open("a") as record:
                    record.write(f"{folder}\n")
                folder.mkdir(parents=True)
        for name in COVERED:
            run([*inside, "mount", "-t", "tmpfs", "-o", "mode=0711", "cascade", name])


def remove_unused() -> None:
    """Remove the folders that were made, unless another cluster uses them.

    The kernel would not refuse to remove a folder that is covered in another namespace: it would
    take the cover away, under the feet of the other cluster.
    """
    if not os.access(MADE, os.W_OK, effective_ids=True):
        return  # nothing was made, or not by this user
    with locks.exclusive(STATE / "lock"):
        if MADE.exists() and not _is_covered():
            for folder in reversed(MADE.read_text().split()):
                # Only if it is empty: somebody else may use it by now.
                with contextlib.suppress(OSError):
                    Path(folder).rmdir()
            MADE.unlink()
    with contextlib.suppress(OSError):
        STATE.rmdir()


def _is_covered() -> bool:
    """Whether any process sees one of our covers."""
    for table in Path("/proc").glob("[0-9]*/mountinfo"):
        try:
            text = table.read_text()
        except OSError:
            continue  # the process ended while we looked
        if " tmpfs cascade " in text and any(f" {name} rw" in text for name in COVERED):
            return True
    return False
