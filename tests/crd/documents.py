"""The shortest valid CascadeService, and changes to it by path."""

import copy
from typing import Any

ABSENT = object()
"""As a changed value: the field is removed."""

MINIMAL: dict[str, Any] = {
    "apiVersion": "cascade-operator.io/v1alpha1",
    "kind": "CascadeService",
    "metadata": {"name": "chat"},
    "spec": {
        "models": [
            {
                "name": "small",
                "source": {"huggingFace": {"id": "meta-llama/Llama-3.1-8B-Instruct"}},
            },
            {
                "name": "large",
                "source": {"huggingFace": {"id": "meta-llama/Llama-3.3-70B-Instruct"}},
            },
        ],
        "qmin": 75,
        "gpuPool": [{"gpuType": "H100", "limit": 12, "gpusPerNode": 8}],
    },
}


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The minimal document with values set by path, such as ``spec.models.0.pins.tensor``;
    objects on the way are made, lists grow by one."""
    document = copy.deepcopy(MINIMAL)
    for path, value in changes.items():
        place: Any = document
        *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        for part in parents:
            if isinstance(part, int):
                if part == len(place):
                    place.append({})
                place = place[part]
            else:
                place = place.setdefault(part, {})
        if value is ABSENT:
            del place[last]
        elif isinstance(last, int) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return document
