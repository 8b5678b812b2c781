"""Names that the operator, its charts and drift-watch share: group, labels, object names."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

GROUP = "cascade-operator.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "CascadeService"
PLURAL = "cascadeservices"

FIELD_MANAGER = "cascade-operator"
DRIFTWATCH_FIELD_MANAGER = "cascade-driftwatch"

LABEL_CASCADE = f"{GROUP}/cascade"
LABEL_MODEL = f"{GROUP}/model"
LABEL_SET = f"{GROUP}/set"
LABEL_PLAN = f"{GROUP}/plan-revision"
LABEL_COMPONENT = "app.kubernetes.io/component"
LABEL_NAME = "app.kubernetes.io/name"
LABEL_PART_OF = "app.kubernetes.io/part-of"
LABEL_MANAGED_BY = "app.kubernetes.io/managed-by"
LABEL_VERSION = "app.kubernetes.io/version"

COMPONENT_ENGINE = "engine"
COMPONENT_ROUTER = "router"
COMPONENT_CALIBRATION = "calibration"
COMPONENT_PLAN = "plan"

ANNOTATION_APPROVE = f"{GROUP}/approve-plan"
"""On the cascade: the plan revision that the user approves (planPolicy.mode Propose)."""
ANNOTATION_SHAPE = f"{GROUP}/shape"
"""On a StatefulSet: the planned set as JSON, so that a restarted operator can read it back."""
ANNOTATION_RENDER_VERSION = f"{GROUP}/render-version"
ANNOTATION_APPLIED = f"{GROUP}/applied"
"""On every child: digest of the manifest as it was applied, so that a field that is no longer
rendered is noticed too."""
ANNOTATION_GPUS = f"{GROUP}/planned-gpus"
"""On the plan ConfigMap: GPUs that other cascades leave to this one."""
ANNOTATION_STEP = f"{GROUP}/step"
"""On the plan ConfigMap: which step of a hand-over runs and since when, so that its deadline
survives a restart of the operator."""

ANNOTATION_ACK_PLAN = f"{GROUP}/plan-id"
ANNOTATION_ACK_DRAINED = f"{GROUP}/drained"
ANNOTATION_ACK_ERROR = f"{GROUP}/reload-error"
ANNOTATION_ACK_VERSIONS = f"{GROUP}/supported-versions"
ANNOTATION_ACK_DIGEST = f"{GROUP}/config-digest"
"""On a router's Lease: SHA-256 (first 16 hex) of the config text that all its processes run."""

ROUTER_PORT = 8000
ADMIN_PORT = 9090
ENGINE_PORT = 30000

MAX_SET_NAME = 52


def digest(value: object, length: int = 8) -> str:
    """Short hexadecimal hash of any JSON value; equal values give equal text."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def router(cascade: str) -> str:
    """Name of the router's Deployment, Service, ConfigMap, ServiceAccount, Role and binding."""
    return f"{cascade}-router"


def plan(cascade: str) -> str:
    """Name of the ConfigMap with the plan and the problem behind it."""
    return f"{cascade}-plan"


def calibration(cascade: str) -> str:
    """Default name of the ConfigMap with the calibration table; its key is ``table.csv``."""
    return f"{cascade}-calibration"


CALIBRATION_KEY = "table.csv"


def serving_service(cascade: str, model: str) -> str:
    """Service whose EndpointSlices list the Ready replicas of a model."""
    return f"{cascade}-{model}"


def headless_service(cascade: str, model: str) -> str:
    """Governing Service of the model's StatefulSets; publishes addresses before readiness."""
    return f"{cascade}-{model}-pods"


def engine_set(cascade: str, model: str, inputs: Mapping[str, Any]) -> str:
    """StatefulSet name: cascade, model and a hash over what makes two sets different.

    At most 52 characters, so that pod names and the controller's revision labels fit in 63; long
    names are cut and the hash then covers what was cut.
    """
    head = f"{cascade}-{model}"
    room = MAX_SET_NAME - 9
    if len(head) > room:
        head = f"{head[: room - 7].rstrip('-')}-{digest(head, 6)}"
    return f"{head}-{digest(dict(inputs))}"
