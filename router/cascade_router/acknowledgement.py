"""What a router pod acknowledges, and the Lease that carries it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .config import SUPPORTED_VERSIONS
from .control import WorkerState

# The operator reads these names; tests/contract pins that both sides spell them alike.
GROUP = "cascade-operator.io"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_CASCADE = f"{GROUP}/cascade"
COMPONENT_ACK = "router-ack"
COMPONENT_CALIBRATION = "calibration"
ANNOTATION_PLAN = f"{GROUP}/plan-id"
ANNOTATION_DRAINED = f"{GROUP}/drained"
ANNOTATION_ERROR = f"{GROUP}/reload-error"
ANNOTATION_VERSIONS = f"{GROUP}/supported-versions"
ANNOTATION_DIGEST = f"{GROUP}/config-digest"
FIELD_MANAGER = "cascade-router"

_ERROR_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """The router pod that acknowledges."""

    namespace: str
    pod: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """What all worker processes of a pod run. ``drained``: UIDs of leaving pods with no work."""

    cascade: str
    plan_id: str
    digest: str
    reload_error: str
    drained: tuple[str, ...]

    def annotations(self) -> dict[str, str]:
        """The Lease's annotations; an empty value is written too, so that an old one goes."""
        return {
            ANNOTATION_PLAN: self.plan_id,
            ANNOTATION_DIGEST: self.digest,
            ANNOTATION_ERROR: self.reload_error[:_ERROR_LENGTH],
            ANNOTATION_DRAINED: ",".join(self.drained),
            ANNOTATION_VERSIONS: ",".join(str(v) for v in SUPPORTED_VERSIONS),
        }


def agreed(
    states: Sequence[WorkerState | None],
    cascade: str,
    uids: Mapping[str, str],
    refusals: Mapping[str, str],
    wanted_digest: str,
) -> Acknowledgement | None:
    """What all workers run, ``None`` while they differ or lag behind ``wanted_digest``.

    ``uids``: last known UID of each pod by name. ``refusals``: digest of a text -> why it was
    refused; a refused text is settled once all workers still run the same older one.
    """
    known = [s for s in states if s is not None]
    if not known or len(known) < len(states):
        return None
    first = known[0]
    if any((s.digest, s.reload_error) != (first.digest, first.reload_error) for s in known):
        return None
    if wanted_digest not in refusals and first.digest != wanted_digest:
        return None
    if wanted_digest in refusals and not first.reload_error:
        return None
    idle = set(first.idle_leaving).intersection(*(s.idle_leaving for s in known))
    drained = sorted(uids[pod] for pod in idle if pod in uids)
    return Acknowledgement(cascade, first.plan_id, first.digest, first.reload_error, tuple(drained))


def lease(identity: Identity, acknowledgement: Acknowledgement) -> dict[str, Any]:
    """The Lease of this pod: same name, owned by it, so that it goes with the pod."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": identity.pod,
            "namespace": identity.namespace,
            "labels": {
                LABEL_COMPONENT: COMPONENT_ACK,
                LABEL_CASCADE: acknowledgement.cascade,
            },
            "annotations": acknowledgement.annotations(),
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": identity.pod, "uid": identity.pod_uid}
            ],
        },
        "spec": {"holderIdentity": identity.pod},
    }
