"""``python -m cascade_demo up|down``: what ``make demo`` and ``make demo-down`` run."""

import argparse
import sys

from cascade_cluster import clusters
from cascade_cluster.errors import ClusterError
from cascade_cluster.settings import Settings, checked_name, from_environment

from . import flow, kube, steps


def main(argv: list[str] | None = None) -> int:
    """Runs the demo; exit code 1 with the reason when a step does not end as it must."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("command", choices=("up", "down"))
    parser.add_argument("--name", default="demo", help="name of the cluster")
    arguments = parser.parse_args(argv)
    try:
        settings, name = from_environment(), checked_name(arguments.name)
        if arguments.command == "down":
            clusters.down(settings, name)
        else:
            up(settings, name)
    except (ClusterError, steps.DemoError) as error:
        print(f"\nerror: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; `make demo-down` removes what is there", file=sys.stderr)
        return 130
    return 0


def up(settings: Settings, name: str) -> None:
    """All steps in order; leaves the cluster running."""
    progress = steps.Progress()
    with progress.step("Starting a Kubernetes cluster (2 nodes with 8 simulated GPUs each)"):
        cluster = clusters.up_with_images(settings, name)
    demo = flow.Demo(progress, cluster, kube.Kube(cluster.kubeconfig))
    flow.install(demo)
    flow.start_uncalibrated(demo)
    service = flow.CASCADE + "-router"
    demo.tunnel = kube.Tunnel(
        demo.api, lambda *words: [*cluster.programs.kubectl, *words], cluster.environment(),
        flow.NAMESPACE, service,
    )  # fmt: skip
    try:
        flow.calibrate(demo)
        flow.ask(demo)
        flow.traffic_and_shift(demo)
    finally:
        demo.tunnel.close()
    progress.summary()
    flow.next_commands(cluster.kubeconfig)


if __name__ == "__main__":
    sys.exit(main())
