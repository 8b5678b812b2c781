"""The command line: `python -m cascade_cluster COMMAND`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cascade_cluster import clusters
from cascade_cluster.errors import ClusterError
from cascade_cluster.instance import LEVELS
from cascade_cluster.settings import checked_name, from_environment


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
    add("down", "end a cluster and remove all of it")
    add("kubeconfig", "print the path of the kubeconfig")
    add("images", "build the project's images and load them into the nodes")
    commands.add_parser("status", help="list the clusters")
    for name in ("kubectl", "helm"):
        command = add(name, f"run {name} against a cluster")
        command.add_argument("words", nargs=argparse.REMAINDER)
    return top


def run(arguments: argparse.Namespace) -> None:
    """Carry out one command."""
    settings = from_environment()
    if arguments.command == "status":
        print("\n".join(clusters.status(settings)))
        return
    name = checked_name(arguments.name)
    if arguments.command == "up":
        cluster = clusters.up(
            settings, name, arguments.level, arguments.nodes, arguments.gpus_per_node
        )
        print(cluster.kubeconfig)
    elif arguments.command == "down":
        clusters.down(settings, name)
    elif arguments.command == "kubeconfig":
        print(clusters.find(settings, name).kubeconfig)
    elif arguments.command == "images":
        print("\n".join(clusters.images(settings, name)))
    else:
        cluster = clusters.find(settings, name)
        words = [*getattr(cluster.programs, arguments.command), *arguments.words]
        os.execvpe(words[0], words, cluster.environment())


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; errors of ours are told without a traceback."""
    try:
        run(parser().parse_args(argv))
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
