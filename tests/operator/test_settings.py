"""Settings: read once, refused with the variable's name, its value and what is allowed."""

import pytest

from cascade_operator import settings

OWN = {"CASCADE_NAMESPACE": "cascade-system", "CASCADE_POD_NAME": "operator-0"}


def test_what_is_not_set_has_a_default() -> None:
    found = settings.from_environment(OWN)
    assert found == settings.Settings(namespace="cascade-system", pod_name="operator-0")


def test_every_field_can_be_set() -> None:
    assert set(settings.READERS) == set(settings.Settings.__dataclass_fields__)


BAD: dict[str, tuple[dict[str, str], str]] = {
    "not a boolean": ({"CASCADE_CLUSTER_SCOPED": "yes"}, "true or false"),
    "not seconds": ({"CASCADE_RESYNC_SECONDS": "-1"}, "more than 0"),
    "not a list": ({"CASCADE_WATCH_NAMESPACES": "a,b"}, "JSON list"),
    "not texts": ({"CASCADE_WATCH_NAMESPACES": "[1]"}, "JSON list of texts"),
    "not objects": ({"CASCADE_ENGINE_ENV": '["a"]'}, "JSON list of objects"),
    "not a level": ({"CASCADE_LOG_LEVEL": "loud"}, "debug"),
    "not a user": ({"CASCADE_RUN_AS_USER": "root"}, "a user id"),
    "no namespace to work in": ({"CASCADE_CLUSTER_SCOPED": "false"}, "at least one namespace"),
    "a request could outlive the Lease": (
        {"CASCADE_REQUEST_TIMEOUT_SECONDS": "10"}, "less than lease duration",
    ),
    "time stands still": ({"CASCADE_TIME_SCALE": "0"}, "more than 0"),
    "nobody": ({"CASCADE_POD_NAME": ""}, "CASCADE_POD_NAME is missing"),
}  # fmt: skip


@pytest.mark.parametrize(("variables", "words"), BAD.values(), ids=BAD)
def test_refused(variables: dict[str, str], words: str) -> None:
    with pytest.raises(settings.SettingsError) as refused:
        settings.from_environment(OWN | variables)
    assert words in str(refused.value)
    (name,) = variables
    assert name in str(refused.value) or name == "CASCADE_CLUSTER_SCOPED"


def test_an_empty_user_leaves_the_uid_to_the_platform() -> None:
    assert settings.from_environment(OWN | {"CASCADE_RUN_AS_USER": ""}).run_as_user is None
