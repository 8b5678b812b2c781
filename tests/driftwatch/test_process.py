"""Settings from the environment, and what probes see of the loop."""

from typing import Any

import pytest
from aiohttp import test_utils

from cascade_driftwatch import front, metrics, settings
from cascade_driftwatch.watch import Watch
from tests.driftwatch.stand_ins import FakeApi, FakeRouters


def test_settings_come_from_the_environment_with_defaults() -> None:
    assert settings.load({}) == settings.Settings()
    loaded = settings.load(
        {
            "CASCADE_DRIFT_PERIOD_SECONDS": "2.5",
            "CASCADE_TIME_SCALE": "20",
            "CASCADE_WATCH_NAMESPACES": '["team-a"]',
            "CASCADE_HTTP_PORT": "9191",
        }
    )
    assert loaded == settings.Settings(
        period_seconds=2.5, time_scale=20.0, namespaces=("team-a",), http_port=9191
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CASCADE_DRIFT_PERIOD_SECONDS", "soon"),
        ("CASCADE_TIME_SCALE", "0"),
        ("CASCADE_WATCH_NAMESPACES", "team-a"),
        ("CASCADE_WATCH_NAMESPACES", "[1]"),
        ("CASCADE_HTTP_PORT", "70000"),
    ],
)
def test_a_bad_setting_is_named_with_its_value(name: str, value: str) -> None:
    with pytest.raises(settings.SettingsError) as raised:
        settings.load({name: value})
    assert f"{name}={value}: must be" in str(raised.value)


async def test_probes_follow_the_loop() -> None:
    now = [1000.0]
    counted, chosen = metrics.Metrics(), settings.Settings(period_seconds=1.0)
    watch = Watch(FakeApi(), FakeRouters(), chosen, counted, lambda: now[0])
    watch._api.cascades = []  # type: ignore[attr-defined]
    app = front.application(watch, chosen, counted.exposition, lambda: now[0])
    async with test_utils.TestClient(test_utils.TestServer(app)) as client:

        async def status(path: str) -> Any:
            async with client.get(path) as response:
                return response.status

        assert await status("/readyz") == 503
        await watch.round()
        assert await status("/readyz") == 200
        assert await status("/healthz") == 200
        now[0] += 1000.0
        assert await status("/healthz") == 503
        async with client.get("/metrics") as response:
            assert "cascade_driftwatch_status_writes_total" in await response.text()
