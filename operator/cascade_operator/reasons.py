"""Reasons of the nine conditions, with their meanings; users may rely on the words."""

# Ready; while it is False, the reason is that of ModelsReady or RouterReady.
SERVING = "Serving"
"""Models and router serve this generation."""

# Reconciling
SETTLED = "Settled"
"""Nothing is under way."""
PLANNING = "Planning"
"""A plan is being computed."""
MOVING = "Moving"
"""A hand-over is under way; the message names its step."""
RETRYING = "Retrying"
"""A step of the last pass failed and is tried again; the message holds the error."""

# Stalled
PROGRESSING = "Progressing"
"""Nothing has been given up."""
INVALID_SPEC = "InvalidSpec"
"""The spec asks for what cannot be done; the message lists field, value and what is allowed."""
STEP_DEADLINE = "StepDeadlineExceeded"
"""One step of a hand-over took longer than rollout.stepDeadlineSeconds."""
POD_NOT_READY = "PodNotReady"
"""The same, while waiting for the named pod to become Ready."""
ROUTER_NOT_ACKNOWLEDGING = "RouterNotAcknowledging"
"""The same, while waiting for router pods to confirm the published configuration."""

# PlanReady: Feasible, Uncalibrated, StaleCalibration and QualityUnreachable are plan verdicts;
# Infeasible, InsufficientGPUs, UnknownModel and PlanningFailed are reasons of planning errors.
INVALID_CALIBRATION = "InvalidCalibration"
"""The calibration table cannot be used; row and column are named."""
INSUFFICIENT_GPUS = "InsufficientGPUs"
"""The pool has too few GPUs for these models."""
AWAITING_APPROVAL = "AwaitingApproval"
"""planPolicy.mode is Propose and the newest plan is not approved yet."""
PAUSED = "Paused"
"""planPolicy.paused holds back a new plan."""

# PlanApplied
APPLIED = "Applied"
"""What runs is what was planned."""
NO_PLAN = "NoPlan"
"""There is no plan yet."""
IN_PROGRESS = "InProgress"
"""The hand-over to the plan is under way."""
NEEDS_DOWNTIME = "NeedsDowntime"
"""A better plan exists that only rollout.allowDowntime could reach."""

# ModelsReady, RouterReady
MODELS_READY = "ModelsReady"
"""Every model has the Ready replicas that it must keep."""
STARTING = "Starting"
"""Replicas are on their way and nothing is wrong with them so far."""
CRASH_LOOP = "CrashLoop"
"""An engine starts and ends again and again."""
IMAGE_PULL = "ImagePullFailed"
"""The kubelet cannot fetch an engine's image."""
POD_BLOCKED = "PodBlocked"
"""The kubelet or the scheduler says why a pod does not start."""
NODE_LOST = "NodeLost"
"""A replica's node is not Ready; its GPUs are neither free nor usable."""
GPU_HELD = "GPUHeldByOldPod"
"""A Terminating pod of this cascade still holds the GPUs that are waited for."""
ROUTER_READY = "RouterReady"
"""At least one router pod is Ready and runs the published configuration."""
ROUTER_STARTING = "RouterStarting"
"""No router pod is Ready yet."""
CONFIG_REFUSED = "ConfigRefused"
"""A router pod refused the published configuration and keeps the one before."""

# QualityMet
PREDICTED = "Predicted"
"""By the calibration table; nothing was measured."""
QUALITY_UNREACHABLE = "QualityUnreachable"
"""These models do not reach qmin; the message names what they reach."""
BYPASSED = "Bypassed"
"""During a declared downtime some model is not asked, so the prediction does not hold."""

# DriftWatchHealthy
FRESH = "Fresh"
"""drift-watch wrote status.drift not long ago."""
STALE = "Stale"
"""drift-watch has not written status.drift for several windows."""
WAITING = "Waiting"
"""drift-watch has not written status.drift yet."""
OFF = "Off"
"""Nothing is watched: drift.mode is Off, or drift-watch is not installed (driftWatch.enabled)."""
