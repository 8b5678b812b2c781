"""kopf: events of cascades and their children reach the controller; kopf itself patches nothing.

Only ``on.event`` handlers: no finalizer, no annotation, no status comes from kopf, and a namespace
with cascades can be deleted while the operator is away.
"""

import asyncio
import dataclasses
import datetime
import os
from typing import Any

import kopf

from . import names
from .controller import Controller
from .kube import CASCADE, CONFIG_MAP, DEPLOYMENT, LEASE, POD, STATEFUL_SET, Resource
from .settings import Settings

CHILDREN = (STATEFUL_SET, DEPLOYMENT, POD, CONFIG_MAP, LEASE)
TOKEN_SECONDS = 600
"""kopf reads a token at login only: it is asked to log in again so often."""


def registry(controller: Controller, stop: asyncio.Event) -> kopf.OperatorRegistry:
    """kopf's handlers, bound to one controller; ``stop`` is set when it ends."""
    found = kopf.OperatorRegistry()

    @kopf.on.startup(registry=found)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        _configure(settings)

    @kopf.on.login(registry=found)
    def login(**context: Any) -> kopf.ConnectionInfo | None:
        return _login(**context)

    def noticed(kind: str) -> Any:
        async def event(body: kopf.Body, type: str | None, **_: Any) -> None:
            # A deletion reaches the caches by their own watches, which know what there was.
            if type != "DELETED":
                controller.offer(kind, dict(body))

        return event

    kopf.on.event(*_names(CASCADE), registry=found, id="cascade")(noticed(CASCADE.kind))
    for resource in CHILDREN:
        kopf.on.event(
            *_names(resource),
            registry=found,
            id=resource.plural,
            labels={names.LABEL_CASCADE: kopf.PRESENT},
        )(noticed(resource.kind))

    @kopf.on.startup(registry=found)
    async def tick(**_: Any) -> None:
        tasks.append(asyncio.create_task(controller.resync(), name="resync"))

    @kopf.on.cleanup(registry=found)
    async def untick(**_: Any) -> None:
        # kopf takes SIGTERM for itself, and waits for our tasks: they have to hear of it.
        stop.set()
        for task in tasks:
            task.cancel()

    tasks: list[asyncio.Task[None]] = []
    return found


async def run(controller: Controller, settings: Settings, stop: asyncio.Event) -> None:
    """kopf until ``stop`` is set."""
    await kopf.operator(
        registry=registry(controller, stop),
        settings=kopf.OperatorSettings(),
        standalone=True,
        # kopf asks for the user's name otherwise, and a container's user id need not have one.
        identity=settings.pod_name,  # type: ignore[arg-type]  # a private NewType of str
        clusterwide=settings.cluster_scoped,
        namespaces=() if settings.cluster_scoped else settings.watch_namespaces,
        stop_flag=stop,
    )


def _names(resource: Resource) -> tuple[str, str, str] | tuple[str, str]:
    group, _, version = resource.api_version.rpartition("/")
    return (group, version, resource.plural) if group else (version, resource.plural)


def _configure(settings: kopf.OperatorSettings) -> None:
    settings.posting.enabled = False
    settings.peering.standalone = True
    # Reads of CRDs and namespaces, which a namespaced operator may not do, and nobody needs.
    settings.scanning.disabled = True
    settings.watching.server_timeout = 290
    settings.watching.client_timeout = 320
    settings.watching.connect_timeout = 10
    settings.execution.max_workers = 1
    # Handlers only mark: nothing is worth waiting for at the end.
    settings.queueing.exit_timeout = 0.2
    settings.queueing.idle_timeout = 1.0
    settings.persistence.finalizer = f"{names.GROUP}/unused"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)
    for resource in CHILDREN:
        settings.watching.label_selectors[_names(resource)] = names.LABEL_CASCADE


def _login(**context: Any) -> kopf.ConnectionInfo | None:
    in_cluster = os.environ.get("KUBERNETES_SERVICE_HOST") and not os.environ.get("KUBECONFIG")
    if not in_cluster:
        return kopf.login_with_kubeconfig(**context)
    found = kopf.login_with_service_account(**context)
    if found is None:
        return None
    expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=TOKEN_SECONDS)
    return dataclasses.replace(found, expiration=expires)
