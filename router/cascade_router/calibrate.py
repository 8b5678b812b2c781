"""Makes a calibration table: every model answers every prompt, the live judge scores all."""

import argparse
import asyncio
import datetime
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import structlog
import uvloop

from . import calibration_table as tables
from . import judges, openai, relay, reload
from . import prompts as prompt_file
from .backends import Call, EngineBackend
from .calibration_table import Cell, Header
from .config import RoutedModel, RouterConfig, StaticEndpoint
from .endpoints import Directory
from .errors import KubeError, RouterError
from .judges import LiveJudge
from .metrics import Metrics
from .prompts import Prompt
from .upstream import Client

log = structlog.get_logger()

JUDGE_SECONDS = 60.0
"""Judging here is not in a client's path: the live deadline would lose scores to queues."""
TRIES = 4
FIRST_PAUSE_SECONDS = 0.5
PROGRESS_SECONDS = 5.0


class CalibrationError(Exception):
    """The table cannot be made; the message says what to change."""


class RefusedError(CalibrationError):
    """A model refuses this prompt for good (a 4xx): asking again changes nothing."""


class Store(Protocol):
    """Where the table is kept."""

    async def load(self) -> str:
        """The table so far, empty when there is none."""

    async def save(self, text: str, added: str) -> None:
        """Keep the whole table ``text``, whose newest part is ``added``."""

    async def finish(self, text: str) -> None:
        """The table is complete."""


def calibrated(config: RouterConfig) -> RouterConfig:
    """The plan as calibration uses it: reachable engines, and the LLM judge in any case.

    A table scored by ``Self`` would be fitted on itself. Raises ``CalibrationError``.
    """
    models = []
    for model in config.models:
        endpoints = model.endpoints
        if not endpoints and model.service_url:
            endpoints = (StaticEndpoint(url=model.service_url.rstrip("/")),)
        if not endpoints:
            raise CalibrationError(
                f"models: {model.name} has neither serviceUrl nor endpoints: it cannot be reached"
            )
        models.append(
            model.model_copy(update={"endpoints": endpoints, "service": None, "leaving_pods": ()})
        )
    judge = config.judge
    if judge.type != "LLM":
        judge = judge.model_copy(update={"type": "LLM", "template_id": ""})
    return config.model_copy(update={"models": tuple(models), "judge": judge})


class Calibration:
    """Asks and judges; one prompt at every model makes one row."""

    def __init__(
        self, config: RouterConfig, rng: random.Random, clock: Callable[[], float]
    ) -> None:
        self._config = config
        self._client = Client()
        directory = Directory()
        directory.apply_config(config)
        metrics = Metrics()
        self._backend = EngineBackend(self._client, directory, metrics, rng, clock)
        self._judge = LiveJudge(self._backend, metrics, clock)
        self.no_verdicts = 0

    async def row(self, prompt: Prompt) -> list[Cell]:
        """One cell per model; raises ``CalibrationError`` when a model or the judge is lost."""
        work = (self._persist(prompt, model) for model in self._config.models)
        cells = []
        for result in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result
            cells.append(result)
        return cells

    async def close(self) -> None:
        """Close all connections."""
        await self._backend.finish_aborts()
        self._client.close()

    async def _persist(self, prompt: Prompt, model: RoutedModel) -> Cell:
        pause = FIRST_PAUSE_SECONDS
        for left in reversed(range(TRIES)):
            try:
                return await self._cell(prompt, model)
            except RefusedError:
                raise
            except (CalibrationError, RouterError) as error:
                if not left:
                    raise CalibrationError(f"{prompt.id} at {model.name}: {error}") from None
                await asyncio.sleep(pause)
                pause *= 2
        raise AssertionError("the last try returns or raises")

    async def _cell(self, prompt: Prompt, model: RoutedModel) -> Cell:
        config, ask = self._config, prompt_file.ask(prompt)
        body = ask.upstream_body(model.name, with_logprobs=True)
        opened = await self._backend.open(
            Call(model.name, openai.CHAT, body, ask.headers, config.timeouts)
        )
        try:
            answer = await relay.collect(
                opened, model.name, ask, config.limits.answer_bytes, has_added_logprobs=True
            )
        finally:
            opened.close()
        if answer.status != 200 or answer.prompt_tokens is None:
            shown = f"status {answer.status}: {answer.payload[0][:200].decode(errors='replace')}"
            if 400 <= answer.status < 500 and answer.status != 429:
                raise RefusedError(f"{prompt.id} at {model.name}: {shown}")
            raise CalibrationError(shown)
        verdict = await self._judge.judge(config, model, ask, answer, JUDGE_SECONDS)
        if verdict.is_lost:
            name = judges.judge_model(config, model)
            raise CalibrationError(f"no score from judge {name}: {verdict.reason}")
        if verdict.score is None:
            self.no_verdicts += 1
        return Cell(
            score=self._routed_score(verdict.score, verdict.is_unfit),
            signal=answer.signal,
            input_tokens=answer.prompt_tokens,
            output_tokens=answer.completion_tokens or 0,
        )

    def _routed_score(self, score: int | None, is_unfit: bool) -> int:
        """The score that routes like the live verdict: without one it is escalated or accepted."""
        if score is not None:
            return score
        is_accepted = self._config.judge.on_no_verdict == "Accept" and not is_unfit
        return 100 if is_accepted else 0


async def run(
    config: RouterConfig,
    prompts: Sequence[Prompt],
    store: Store,
    *,
    concurrency: int,
    date: str,
    rng: random.Random,
    clock: Callable[[], float],
    say: Callable[[str], None],
) -> list[str]:
    """Fill the table in ``store``; returns what failed and may work later, in words.

    Rows that the table has are skipped; a failed prompt leaves no row, so the next run tries it
    again. A prompt that a model refuses is left out. The table is finished when nothing failed.
    Raises ``CalibrationError`` or ``TableError`` before any prompt is asked.
    """
    config = calibrated(config)
    judge = config.judge.model or "the next model"
    header = Header.of(config, f"{config.judge.type} by {judge}", date)
    text, done = tables.resume(await store.load(), header)
    left = [p for p in prompts if p.id not in done]
    if len(done) + len(left) > tables.MAX_ROWS:
        raise CalibrationError(f"{len(done) + len(left)} rows: at most {tables.MAX_ROWS}")
    say(f"{len(left)} of {len(prompts)} prompts to ask, {len(config.models)} models each")
    calibration = Calibration(config, rng, clock)
    table = _Table(store, text)
    failures: list[str] = []
    queue = iter(left)
    started = last_said = clock()

    async def work() -> None:
        nonlocal last_said
        for prompt in queue:
            try:
                await table.add(tables.row(prompt.id, await calibration.row(prompt)))
            except RefusedError as error:
                say(f"left out: {error}")
            except CalibrationError as error:
                failures.append(str(error))
            if clock() - last_said > PROGRESS_SECONDS:
                last_said = clock()
                say(f"{table.added + len(failures)} of {len(left)} prompts done")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, len(left))):
                group.create_task(work())
    finally:
        await calibration.close()
    await table.flush()
    if not failures:
        await store.finish(table.text)
    say(f"{table.added} rows added in {clock() - started:.1f} s, {len(failures)} prompts failed, "
        f"{calibration.no_verdicts} answers without a verdict")  # fmt: skip
    return failures


class _Table:
    """Rows in the order they come in; saved one after the other, many at once if saving is slow."""

    def __init__(self, store: Store, text: str) -> None:
        self._store = store
        self.text = text
        self._unsaved = text
        self._lock = asyncio.Lock()
        self.added = 0

    async def add(self, row: str) -> None:
        self.text += row
        self._unsaved += row
        self.added += 1
        if not self._lock.locked():
            await self.flush()

    async def flush(self) -> None:
        async with self._lock:
            if self._unsaved:
                added, self._unsaved = self._unsaved, ""
                await self._store.save(self.text, added)


class FileStore:
    """A table in a file: appended to, so that a crash loses one row at most."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_begun = False

    async def load(self) -> str:
        return self._path.read_text() if self._path.exists() else ""

    async def save(self, text: str, added: str) -> None:
        # The first save also drops a line that a crash has cut.
        if self._has_begun:
            with self._path.open("a") as file:
                file.write(added)
        else:
            self._path.write_text(text)
            self._has_begun = True

    async def finish(self, text: str) -> None:
        """Nothing is left to do."""


def main(args: argparse.Namespace) -> int:
    """The command ``calibrate``; returns the exit status."""
    from . import logs

    logs.configure("calibrate", args.log_level)
    try:
        config = reload.parse(args.config.read_text())
        prompts = prompt_file.read_prompts(args.prompts.read_text().splitlines())[: args.limit]
        failures = uvloop.run(_main(args, config, prompts))
    except (
        OSError,
        reload.BadConfigError,
        CalibrationError,
        prompt_file.PromptError,
        tables.TableError,
        KubeError,
    ) as error:
        print(f"cascade-router calibrate: {error}", file=sys.stderr)
        return 2
    for failure in failures[:10]:
        print(f"failed: {failure}", file=sys.stderr)
    if failures:
        print(f"{len(failures)} prompts failed; run again to ask only these", file=sys.stderr)
    return 1 if failures else 0


async def _main(
    args: argparse.Namespace, config: RouterConfig, prompts: Sequence[Prompt]
) -> list[str]:
    store: Store
    close: Callable[[], Any] | None = None
    if args.out is not None:
        store = FileStore(args.out)
    else:
        from . import calibration_configmap

        store = await calibration_configmap.connect(args.namespace, args.configmap, config.cascade)
        close = store.close
    now = datetime.datetime.now(datetime.UTC)
    try:
        return await run(
            config,
            prompts,
            store,
            concurrency=max(1, args.concurrency),
            date=now.replace(microsecond=0).isoformat(),
            rng=random.Random(args.seed),
            clock=time.monotonic,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    finally:
        if close is not None:
            await close()
