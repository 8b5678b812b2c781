"""Lint of the Helm charts, with helm itself."""

from pathlib import Path

from cascade_cluster import commands, handle, settings
from cascade_cluster.errors import ClusterError

CHARTS = (Path("charts/cascade-operator-crds"), Path("charts/cascade-operator"))


def problems(repository: Path) -> list[str]:
    """What `helm lint --strict` says against each chart; nothing when all is well."""
    helm = handle.installed_or_compiled(settings.from_environment().cache).helm
    found = []
    for chart in CHARTS:
        try:
            commands.run([*helm, "lint", "--strict", "--quiet", str(repository / chart)])
        except ClusterError as error:
            found.append(f"{chart}: {error}")
    return found
