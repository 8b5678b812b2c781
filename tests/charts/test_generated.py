"""Copies of the definition follow from it, and a copy that does not is found."""

from pathlib import Path

import pytest

from cascade_checks import __main__, generated
from tests.charts.conftest import ROOT


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that holds the definition and its fresh copies."""
    (tmp_path / "crds").mkdir()
    (tmp_path / generated.CRD).write_text((ROOT / generated.CRD).read_text())
    generated.write(tmp_path)
    return tmp_path


def test_the_copies_in_the_repository_are_up_to_date() -> None:
    assert generated.differences(ROOT) == []


@pytest.mark.parametrize("path", [generated.CHART_COPY, generated.REFERENCE], ids=str)
def test_an_edited_or_missing_copy_is_named(repository: Path, path: Path) -> None:
    assert generated.differences(repository) == []
    (repository / path).write_text("edited")
    (found,) = generated.differences(repository)
    assert found.startswith(str(path)) and "make crds" in found
    (repository / path).unlink()
    assert generated.differences(repository) == [found]


def test_a_change_of_the_definition_makes_both_copies_stale(repository: Path) -> None:
    definition = repository / generated.CRD
    definition.write_text(definition.read_text().replace("Lowest mean quality", "Least quality"))
    assert len(generated.differences(repository)) == 2
    generated.write(repository)
    assert "Least quality" in (repository / generated.REFERENCE).read_text()


def test_text_that_helm_would_execute_is_refused() -> None:
    with pytest.raises(ValueError, match="helm would read as an action"):
        generated.chart_copy(generated.NAME_LINE + "description: '{{ .Values }}'\n")


@pytest.mark.parametrize("arguments", [[], ["chart"], ["charts", "extra"]])
def test_a_wrong_command_is_answered_with_the_right_ones(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert __main__.main(arguments) == 2
    assert "generated|write|charts" in capsys.readouterr().err


def test_the_reference_names_every_field() -> None:
    page = (ROOT / generated.REFERENCE).read_text()
    for field in ("labelMassMinPercent", "stepDeadlineSeconds", "provenGapPercent", "inputDeciles"):
        assert f"`{field}`" in page
    assert "| `stableRounds` | integer, 1 to 20 | `3` |" in page
    assert "decided by the planner" in page
