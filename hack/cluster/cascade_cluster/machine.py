"""The machine that a cluster with real pods runs in: Linux namespaces, joined by one cable.

Nodes, pods and control plane share process, mount and network namespaces of their own. Two clusters
then cannot disturb each other's ports, routes and nftables, and the death of the first process
takes everything with it: containers, their helpers, mounts and network devices.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from cascade_cluster import fixed_folders, network, processes
from cascade_cluster.commands import run
from cascade_cluster.console import say
from cascade_cluster.errors import ClusterError, CommandError
from cascade_cluster.launcher import Launcher
from cascade_cluster.network import Network

CABLE = "uplink"
"""Name of the cable's inner end."""

# The kernel's limit for the path of a Unix socket, less the longest name below the folder.
MAX_FOLDER_LENGTH = 107 - len("/node-31/containerd.sock.ttrpc")


def create(launcher: Launcher, pause: Path, nodes: int) -> Network:
    """Make the namespaces, plug in the cable and give the machine its addresses."""
    instance = launcher.instance
    if len(str(instance.folder)) > MAX_FOLDER_LENGTH:
        raise ClusterError(
            f"The path {instance.folder} is too long for the sockets that lie in it.",
            f"{MAX_FOLDER_LENGTH} characters are possible.",
            "Choose a shorter name, or a shorter folder with CASCADE_DATA.",
        )
    unshare = shutil.which("unshare") or "/usr/bin/unshare"
    log = instance.logs / "machine.log"
    wrapper = launcher.start(
        "machine",
        [
            unshare, "--pid", "--fork", "--mount-proc", "--mount", "--propagation", "private",
            "--net", "--ipc", "--", pause,
        ],
    )  # fmt: skip
    child = processes.only_child(wrapper)
    # unshare forks before it mounts /proc and becomes `pause`.
    processes.wait_for_program(child, pause)
    instance.machine = processes.observe("machine", child, log)
    instance.save()
    fixed_folders.prepare(launcher.inside())
    net = _plug_in(launcher)
    _configure(launcher, net, nodes)
    return net


def _plug_in(launcher: Launcher) -> Network:
    """Lay the cable under the first free network number.

    The name of the outer end holds the number, and the kernel refuses a name twice: of two clusters
    that start together, one goes on to the next number.
    """
    instance = launcher.instance
    assert instance.machine is not None, "the namespaces exist by now"
    for number in network.candidates(network.present_routes()):
        try:
            run(
                [
                    "ip", "link", "add", Network(number).device, "type", "veth",
                    "peer", "name", CABLE, "netns", str(instance.machine.pid),
                ]
            )  # fmt: skip
        except CommandError as error:
            if "File exists" in error.why:
                continue
            raise
        instance.network = number
        instance.save()
        return Network(number)
    raise ClusterError("No free network for the cluster.", "Others took the last ones meanwhile.")


def _configure(launcher: Launcher, net: Network, nodes: int) -> None:
    run(["ip", "address", "add", f"{net.host}/24", "dev", net.device])
    run(["ip", "link", "set", net.device, "up"])
    run(["ip", "route", "add", net.all, "via", net.api, "dev", net.device])
    lines = [
        "link set lo up",
        f"address add {net.api}/24 dev {CABLE}",
        *[f"address add {net.node(index)}/32 dev {CABLE}" for index in range(nodes)],
        f"address add {net.dns}/32 dev {CABLE}",
        f"link set {CABLE} up",
        f"route add default via {net.host}",
    ]
    run([*launcher.inside(), "ip", "-batch", "-"], stdin="\n".join(lines) + "\n")
    # Between pods the machine is a router.
    run([*launcher.inside(), "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"])
    say(f"network {net.all}; pods and Services answer to this host")
