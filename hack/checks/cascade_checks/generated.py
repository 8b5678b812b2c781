"""Files that are made from crds/: the chart's copy and the reference page."""

from pathlib import Path

from cascade_checks import reference

CRD = Path("crds/cascadeservices.yaml")
CHART_COPY = Path("charts/cascade-operator-crds/templates/cascadeservices.yaml")
REFERENCE = Path("docs/reference/cascadeservice.md")

NAME_LINE = "  name: cascadeservices.cascade-operator.io\n"
KEEP = "  annotations:\n    helm.sh/resource-policy: keep\n"


def chart_copy(crd: str) -> str:
    """The definition as a chart template that `helm uninstall` leaves in place.

    Raises ``ValueError`` where the text could not be a template.
    """
    if "{{" in crd:
        raise ValueError(f"{CRD} holds '{{{{', which helm would read as an action")
    if crd.count(NAME_LINE) != 1:
        raise ValueError(f"{CRD} must hold its metadata.name exactly once")
    body = crd[crd.index("apiVersion:") :]
    note = f"# Generated from {CRD} by `make crds`; do not edit.\n"
    return note + body.replace(NAME_LINE, NAME_LINE + KEEP)


def contents(repository: Path) -> dict[Path, str]:
    """Every generated file with the text it must have."""
    crd = (repository / CRD).read_text()
    return {CHART_COPY: chart_copy(crd), REFERENCE: reference.page(crd)}


def differences(repository: Path) -> list[str]:
    """One line for each generated file that is out of date."""
    found = []
    for path, text in contents(repository).items():
        file = repository / path
        if not file.exists() or file.read_text() != text:
            found.append(f"{path} does not follow from {CRD}: run `make crds`")
    return found


def write(repository: Path) -> list[str]:
    """Writes every generated file; there is nothing to report."""
    for path, text in contents(repository).items():
        (repository / path).parent.mkdir(parents=True, exist_ok=True)
        (repository / path).write_text(text)
    return []
