"""Router and operator spell the acknowledgement alike, though neither imports the other for it."""

from cascade_operator import names
from cascade_router import acknowledgement, calibration_configmap, config


def test_names_of_the_acknowledgement_are_the_operators() -> None:
    assert acknowledgement.ANNOTATION_PLAN == names.ANNOTATION_ACK_PLAN
    assert acknowledgement.ANNOTATION_DRAINED == names.ANNOTATION_ACK_DRAINED
    assert acknowledgement.ANNOTATION_ERROR == names.ANNOTATION_ACK_ERROR
    assert acknowledgement.ANNOTATION_VERSIONS == names.ANNOTATION_ACK_VERSIONS
    assert acknowledgement.ANNOTATION_DIGEST == names.ANNOTATION_ACK_DIGEST
    assert acknowledgement.LABEL_COMPONENT == names.LABEL_COMPONENT
    assert acknowledgement.LABEL_CASCADE == names.LABEL_CASCADE


def test_calibration_configmap_is_the_one_that_the_operator_reads() -> None:
    assert calibration_configmap.KEY == names.CALIBRATION_KEY
    assert acknowledgement.COMPONENT_CALIBRATION == names.COMPONENT_CALIBRATION
    assert config.CONFIG_KEY == "router.json"
