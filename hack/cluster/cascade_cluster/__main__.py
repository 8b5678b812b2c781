"""The command line: `python -m cascade_cluster COMMAND`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from cascade_cluster import clusters
from cascade_cluster.errors import ClusterError
from cascade_cluster.instance import LEVELS
from cascade_cluster.settings import checked_name, from_environment

PASSED_ON = ("kubectl", "helm")


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="cascade_cluster", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str) -> argparse.ArgumentParser:
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--name", default="demo", help="name of the cluster (demo)")
        return command

    up = add("up", "start a cluster, or find the one that runs")
    up.add_argument("--level", choices=LEVELS, default="pods")
    up.add_argument("--nodes", type=int, default=2, help="nodes of the level pods (2)")
    up.add_argument("--gpus-per-node", type=int, default=8, help="GPUs in a node's status (8)")
    up.add_argument(
        "--images", action="store_true", help="also build the project's images (level pods)"
    )
    add("down", "end a cluster and remove all of it")
    add("kubeconfig", "print the path of the kubeconfig")
    add("images", "build the project's images and load them into the nodes")
    archive = add("load", "load an image archive into the nodes")
    archive.add_argument("archive", type=Path)
    commands.add_parser("status", help="list the clusters")
    for name in PASSED_ON:
        add(name, f"run {name} against a cluster, with all words after --name")
    return top


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; the words for kubectl and helm are theirs, options included."""
    command, *words = argv or [""]
    if command not in PASSED_ON or words[:1] in (["-h"], ["--help"]):
        return parser().parse_args(argv)
    own = 2 if words[:1] == ["--name"] else 0
    parsed = parser().parse_args([command, *words[:own]])
    parsed.words = words[own:]
    return parsed


def run(arguments: argparse.Namespace) -> None:
    """Carry out one command."""
    settings = from_environment()
    if arguments.command == "status":
        print("\n".join(clusters.status(settings)))
        return
    name = checked_name(arguments.name)
    if arguments.command == "up":
        size = (arguments.nodes, arguments.gpus_per_node)
        if arguments.images and arguments.level == "pods":
            cluster = clusters.up_with_images(settings, name, *size)
        else:
            cluster = clusters.up(settings, name, arguments.level, *size)
        print(cluster.kubeconfig)
    elif arguments.command == "down":
        clusters.down(settings, name)
    elif arguments.command == "kubeconfig":
        print(clusters.find(settings, name).kubeconfig)
    elif arguments.command == "images":
        print("\n".join(clusters.images(settings, name)))
    elif arguments.command == "load":
        clusters.load_archive(settings, name, arguments.archive)
    else:
        cluster = clusters.find(settings, name)
        words = [*getattr(cluster.programs, arguments.command), *arguments.words]
        os.execvpe(words[0], words, cluster.environment())


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; errors of ours are told without a traceback."""
    try:
        run(parse(sys.argv[1:] if argv is None else argv))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    # A terminated run cleans up as an interrupted one does. Both are set, as shells start
    # background jobs with interrupts ignored.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _interrupt)
    sys.exit(main())
