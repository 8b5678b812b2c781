"""A finding in words, with the numbers that convinced it; pure."""

from . import detect, measures
from .verdict import Finding


def message(finding: Finding, time_scale: float) -> str:
    """``status.drift.message``: the verdict in a sentence, and where the judge is silent."""
    return " ".join([_verdict(finding, time_scale), *_silent_judges(finding)])


def _verdict(finding: Finding, time_scale: float) -> str:
    if finding.verdict == "Unknown" or finding.plan is None or finding.evidence is None:
        return finding.reason or "The traffic left the plan and too little has come since to tell."
    rate = _rates(finding, time_scale)
    if finding.verdict == "Stable":
        count = finding.evidence.requests
        return f"The traffic is as planned: {rate}, {count} requests seen, no test convinces."
    if not finding.convinced:
        return f"The traffic had left the plan and has not returned for long enough: {rate}."
    parts = [_part(test, finding, rate) for test in finding.convinced]
    return f"The traffic left plan {finding.plan.revision}: {'; '.join(parts)}."


def _silent_judges(finding: Finding) -> list[str]:
    """One sentence per model whose answers the judge left without a verdict too often to count."""
    models = finding.evidence.models if finding.evidence is not None else ()
    return [
        f"The judge gave no verdict for {100 * detect.no_verdict_share(model):.0f} % of "
        f"{model.name}'s answers: its escalation and scores are not compared."
        for model in models
        if detect.lacks_verdicts(model)
    ]


def per_minute(requests: int, seconds: float, time_scale: float) -> float:
    """Requests per minute of modelled time."""
    return requests / (seconds * time_scale) * 60 if seconds > 0 else 0.0


def _rates(finding: Finding, time_scale: float) -> str:
    assert finding.plan is not None and finding.evidence is not None
    live = per_minute(finding.evidence.requests, finding.evidence.seconds, time_scale)
    return f"{live:.4g} requests/min against {finding.plan.workload.rate * 60:.4g} planned"


def _part(test: detect.Test, finding: Finding, rate: str) -> str:
    kind, _, subject = test.name.partition("/")
    numbers = f"{subject if kind.endswith('Tokens') else kind} {test.statistic:.3g}"
    numbers += f" beyond {test.threshold:.3g}"
    if kind == "rate":
        return f"{rate} ({subject} {test.statistic:.3g} beyond {test.threshold:.3g})"
    if kind in ("inputTokens", "outputTokens"):
        return f"{_lengths(kind, finding)} ({numbers})"
    return f"{_model(kind, subject, finding)} (z {test.statistic:.3g} beyond {test.threshold:.3g})"


def _lengths(kind: str, finding: Finding) -> str:
    assert finding.plan is not None and finding.evidence is not None
    is_input = kind == "inputTokens"
    workload, window = finding.plan.workload, finding.evidence
    planned = workload.input_deciles if is_input else workload.output_deciles
    live = measures.quantiles(window.input_counts if is_input else window.output_counts)
    what = "prompts" if is_input else "answers of the first model"
    return f"{what} of {live[4]} tokens in the middle against {planned[4]:.0f} planned"


def _model(kind: str, name: str, finding: Finding) -> str:
    assert finding.plan is not None and finding.evidence is not None
    workload = finding.plan.workload
    model = next(m for m in finding.evidence.models if m.name == name)
    if kind == "escalation":
        _, share = detect.escalation_share(model)
        planned = workload.escalation_ratio[name]
        return f"{name} passes on {share:.0%} of its requests against {planned:.0%} planned"
    _, mean, _ = measures.score_moments(model)
    return f"{name} scores {mean:.0f} points on average against {workload.mean_score[name]:.0f}"
