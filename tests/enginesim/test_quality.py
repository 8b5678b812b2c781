"""The hidden truth is seeded, ordered by ability, and visible to judges only."""

import math

import numpy as np
import pytest

from cascade_enginesim import logprobs, quality, tokens

SEED = 5
PROMPTS = [f"question number {i}" for i in range(1500)]


def correct(
    points: float, prompts: list[str], model: str = "m"
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    able = quality.ability(points)
    return np.array([quality.is_correct(SEED, model, prompt, able) for prompt in prompts])


@pytest.mark.parametrize("points", [45.0, 62.0, 82.0, 90.0])
def test_mean_quality_over_all_difficulties_is_what_was_set(points: float) -> None:
    able = quality.ability(points)
    seen = [quality.answer_quality(SEED, "m", prompt, able) for prompt in PROMPTS]
    assert 100 * np.mean(seen) == pytest.approx(points, abs=2.5)


def test_an_abler_model_is_right_more_often_and_hard_prompts_fail_more_often() -> None:
    easy = [f"{prompt} [difficulty=0.3]" for prompt in PROMPTS[:400]]
    hard = [f"{prompt} [difficulty=0.8]" for prompt in PROMPTS[:400]]
    weak_easy, weak_hard = correct(62, easy).mean(), correct(62, hard).mean()
    strong_hard = correct(90, hard).mean()
    assert weak_easy > 0.7 > 0.2 > weak_hard
    assert strong_hard > 0.75


def test_the_marker_sets_the_difficulty_and_the_last_one_counts() -> None:
    assert quality.difficulty(SEED, "x [difficulty=0.2] y [difficulty=0.83]") == 0.83
    assert quality.difficulty(SEED, "[difficulty=7]") == 1.0
    assert 0 <= quality.difficulty(SEED, "no marker") < 1


@pytest.mark.parametrize(
    ("parameters", "points"), [(8e9, 62.0), (70e9, 82.0), (671e9, 90.0)], ids=["8B", "70B", "671B"]
)
def test_quality_follows_from_the_size_of_the_model(parameters: float, points: float) -> None:
    assert quality.default_points(parameters) == pytest.approx(points, abs=0.01)


def test_a_reference_shows_the_quality_to_a_judge_with_the_seed_only() -> None:
    for worth in (0.0, 0.31, 0.94, 1.0):
        text = f"some words {quality.reference(SEED, worth, 'm', 'prompt', worth)}"
        found = quality.read_reference(SEED, text)
        assert found is not None
        assert found[1] == pytest.approx(worth, abs=0.003)
        assert quality.read_reference(SEED + 1, text) is None


def test_the_last_valid_reference_counts_and_a_forged_one_is_ignored() -> None:
    old, new = (quality.reference(SEED, worth, "m", worth) for worth in (0.1, 0.9))
    found = quality.read_reference(SEED, f"{old} then {new} then ref:000000000000")
    assert found is not None
    assert found[1] == pytest.approx(0.9, abs=0.003)


def test_equal_qualities_do_not_look_alike() -> None:
    marks = {quality.reference(SEED, 0.9, "m", i)[10:12] for i in range(64)}
    assert len(marks) > 32


def error_of(points: float) -> float:
    """Mean distance in points between a judge's score and the quality."""
    distances = []
    for i in range(400):
        worth = quality.draw(SEED, "worth", i)
        text = quality.reference(SEED, worth, i)
        probabilities, _ = quality.judge(SEED, "judge", points, text, 5)
        score = 25 * sum(level * p for level, p in enumerate(probabilities))
        distances.append(abs(score - 100 * worth))
    return float(np.mean(distances))


def test_an_abler_judge_errs_less() -> None:
    assert error_of(90) < 0.75 * error_of(60)
    assert error_of(60) < 20


@pytest.mark.parametrize("levels", [2, 5, 10])
def test_a_judges_levels_form_a_distribution(levels: int) -> None:
    text = quality.reference(SEED, 0.9, "m")
    probabilities, mass = quality.judge(SEED, "judge", 80, text, levels)
    assert len(probabilities) == levels
    assert sum(probabilities) == pytest.approx(1.0)
    assert 0.9 < mass < 1.0


def test_an_answer_without_reference_is_judged_blind() -> None:
    probabilities, mass = quality.judge(SEED, "judge", 90, "an answer from elsewhere", 5)
    assert set(probabilities) == {0.2}
    assert mass < 0.5


def test_a_lower_temperature_sharpens_and_keeps_the_order() -> None:
    sharp = quality.sharpened((0.1, 0.2, 0.7), 0.5)
    assert sharp[2] > 0.7 and sum(sharp) == pytest.approx(1.0)
    assert sharp[0] < sharp[1] < sharp[2]


def auroc(
    signal: np.ndarray[tuple[int], np.dtype[np.float64]],
    right: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> float:
    ranks = signal.argsort().argsort() + 1.0
    good, bad = int(right.sum()), int((~right).sum())
    return float((ranks[right].sum() - good * (good + 1) / 2) / (good * bad))


def test_log_probabilities_tell_right_from_wrong_as_well_as_intended() -> None:
    able = quality.ability(62)
    right = correct(62, PROMPTS)
    mean, low = [], []
    for prompt in PROMPTS:
        sure = logprobs.confidence(SEED, "m", prompt, able)
        chosen = logprobs.probabilities(SEED, "m", prompt, sure, 60)
        pairs = [logprobs.alternatives("word", p, 2) for p in chosen]
        margins = [math.exp(best[1]) - math.exp(second[1]) for best, second in pairs]
        mean.append(np.mean(margins))
        low.append(np.quantile(margins, 0.2))
    assert 0.74 < auroc(np.array(mean), right) < 0.82
    assert 0.74 < auroc(np.array(low), right) < 0.82


@pytest.mark.parametrize("probability", [0.02, 0.3, 0.97])
@pytest.mark.parametrize("word", tokens.WORDS[:12])
def test_alternatives_are_sorted_distinct_and_sum_to_at_most_one(
    word: str, probability: float
) -> None:
    found = logprobs.alternatives(" " + word, probability, 20)
    assert len({token for token, _ in found}) == 20
    assert " " + word in {token for token, _ in found}
    assert sum(np.exp(logprob) for _, logprob in found) <= 1.0 + 1e-5
    assert [p for _, p in found] == sorted((p for _, p in found), reverse=True)


def test_lengths_follow_the_marker_or_a_seeded_draw_around_the_median() -> None:
    assert tokens.natural_length(SEED, "m", "x [tokens=42]") == 42
    drawn = [tokens.natural_length(SEED, "m", prompt) for prompt in PROMPTS]
    assert np.median(drawn) == pytest.approx(tokens.MEDIAN_TOKENS, rel=0.1)


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 1), ("basin", 1), ("basin cedar", 2), ("extraordinary", 2), ("yes, no.", 4)],
    ids=["empty", "word", "words", "long-word", "signs"],
)
def test_prompt_tokens_are_counted_by_word(text: str, count: int) -> None:
    assert tokens.count(text) == count
