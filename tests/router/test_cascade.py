"""The walk over real sockets: who answers, what the client sees of it, what engines receive."""

import asyncio
import json
from collections import Counter

import pytest

from cascade_router.config import JudgeConfig, SelfTable
from tests.router import backend
from tests.router.conftest import QUESTION, config_for


async def test_answer_at_or_above_the_threshold_comes_from_the_first_model(engine, serve):
    small = await engine(chat=backend.answers("small", "four"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(60))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, body = await router.chat()
    assert (status, body) == (200, backend.completion("small", "four"))
    assert headers["x-cascade-model"] == "small"
    assert headers["x-cascade-path"] == "small"
    assert headers["x-cascade-scores"] == "small=60"
    assert headers["x-cascade-plan"] == "p1"
    assert large.paths() == ["/v1/decisions"]


async def test_answer_below_the_threshold_is_escalated_and_never_shown(engine, serve):
    small = await engine(chat=backend.answers("small", "rejected"))
    large = await engine(chat=backend.answers("large", "right"), decisions=backend.decisions(59))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, body = await router.chat()
    assert (status, body) == (200, backend.completion("large", "right"))
    assert headers["x-cascade-path"] == "small,large"
    assert headers["x-cascade-scores"] == "small=59"
    assert "rejected" not in str(headers) + body.decode()
    assert [b["model"] for b in large.bodies("/v1/chat/completions")] == ["large"]


async def test_three_models_are_asked_in_order_each_judged_by_the_next(engine, serve):
    small = await engine(chat=backend.answers("small"))
    middle = await engine(chat=backend.answers("middle"), decisions=backend.decisions(10))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(20))
    router = await serve(config_for({"small": [small], "middle": [middle], "large": [large]}))
    _, headers, _ = await router.chat()
    assert headers["x-cascade-path"] == "small,middle,large"
    assert headers["x-cascade-scores"] == "small=10,middle=20"


@pytest.mark.parametrize(
    "thresholds, path, judged",
    [
        ({"small": 0}, "small", 0),
        ({"small": 101}, "large", 0),
        ({"small": 1}, "small", 1),
        ({"small": 100}, "small,large", 1),
    ],
    ids=["0-is-not-judged", "101-is-not-asked", "1-is-judged", "100-escalates-50"],
)
async def test_threshold_at_its_ends(engine, serve, thresholds, path, judged):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(50))
    models = {name: {"threshold": value} for name, value in thresholds.items()}
    router = await serve(config_for({"small": [small], "large": [large]}, models=models))
    _, headers, _ = await router.chat()
    assert headers["x-cascade-path"] == path
    assert large.paths().count("/v1/decisions") == judged


async def test_of_several_choices_the_worst_counts(engine, serve):
    small = await engine(chat=backend.answers("small", choices=3))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(90, 30, 90, 90))
    router = await serve(config_for({"small": [small], "large": [large]}))
    _, headers, _ = await router.chat(n=3)
    assert headers["x-cascade-scores"] == "small=30"
    assert headers["x-cascade-path"] == "small,large"
    assert large.paths().count("/v1/decisions") == 3


async def test_judge_sees_conversation_and_answer_as_data(engine, serve):
    small = await engine(chat=backend.answers("small", "four"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    router = await serve(config_for({"small": [small], "large": [large]}))
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    text = {"type": "text", "text": "What is this?"}
    await router.chat(messages=[{"role": "user", "content": [text, image]}])
    asked = large.bodies("/v1/decisions")[0]
    seen = {"role": "user", "content": [text, {"type": "image_url"}]}
    assert asked["input"] == {"conversation": [seen], "answer": "four"}
    [question] = asked["questions"]
    assert (question["type"], len(question["levels"])) == ("score", 5)
    assert (asked["temperature"], asked["prompt_format_version"]) == (1.0, 1)


@pytest.mark.parametrize(
    "mass, percent, policy, path, scores",
    [
        (0.50, 50, "Escalate", "small", "small=100"),
        (0.49, 50, "Escalate", "small,large", "small=none"),
        (0.49, 50, "Accept", "small", "small=none"),
        (0.001, 0, "Escalate", "small", "small=100"),
    ],
    ids=["at-minimum", "below-escalates", "below-accepts", "no-minimum"],
)
async def test_label_mass_below_the_minimum_is_no_verdict_whatever_the_score(
    engine, serve, mass, percent, policy, path, scores
):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100, mass=mass))
    judge = JudgeConfig(label_mass_min_percent=percent, on_no_verdict=policy)
    router = await serve(config_for({"small": [small], "large": [large]}, judge=judge))
    _, headers, _ = await router.chat()
    assert (headers["x-cascade-path"], headers["x-cascade-scores"]) == (path, scores)
    name = "cascade_router_judge_no_verdict_total"
    assert router.metric(name, model="small", reason="label_mass") == (scores == "small=none")


@pytest.mark.parametrize(
    "script, reason",
    [
        (backend.decisions(100, delay=5.0), "deadline"),
        (backend.fails(500), "status_500"),
        (backend.resets, "engine_failed"),
    ],
    ids=["deadline", "500", "reset"],
)
async def test_lost_judge_keeps_the_planned_visit_ratio(engine, serve, script, reason):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"))
    judging = await engine(decisions=script)
    config = config_for(
        {"small": [small], "judge": [judging], "large": [large]},
        judge=JudgeConfig(model="judge", deadline_milliseconds=100),
        models={
            "judge": {"threshold": 101},
            "small": {"visit_ratio": 1.0},
            "large": {"visit_ratio": 0.3},
        },
    )
    router = await serve(config)
    answers = []
    for _ in range(12):
        answers += await asyncio.gather(*(router.chat() for _ in range(10)))
    paths = Counter(headers["x-cascade-path"] for _, headers, _ in answers)
    assert {status for status, _, _ in answers} == {200}
    assert 0.15 < paths["small,large"] / 120 < 0.45
    total = sum(
        router.metric("cascade_router_judge_no_verdict_total", model="small", reason=r)
        for r in {reason, "deadline", "unavailable"}
    )
    assert total == 120
    name = "cascade_router_judge_no_verdict_total"
    assert router.metric(name, model="small", reason=reason) > 0


async def test_engine_that_fails_to_judge_still_answers(engine, serve):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.fails(500))
    router = await serve(config_for({"small": [small], "large": [large]}))
    for _ in range(12):
        status, headers, _ = await router.chat()
        assert (status, headers["x-cascade-path"]) == (200, "small,large")
    # Its breaker as a judge is open all the same.
    assert large.paths().count("/v1/decisions") < 8


async def test_lost_judge_is_replaced_by_the_self_signal_where_a_table_exists(engine, serve):
    sure, unsure = [[-0.01, -5.0]] * 4, [[-0.7, -0.8]] * 4
    turn = iter([sure, unsure] * 100)

    async def chat(exchange: backend.Exchange) -> None:
        body = exchange.request.json
        pairs = next(turn)
        extra = backend.logprobs(pairs) if body.get("logprobs") else None
        await exchange.reply(200, backend.completion("small", logprobs=extra))

    small = await engine(chat=chat)
    large = await engine(chat=backend.answers("large"), decisions=backend.fails(503))
    table = SelfTable(signal=(0.0, 1.0), score=(0.0, 100.0))
    router = await serve(
        config_for(
            {"small": [small], "large": [large]},
            models={"small": {"self_table": table}, "large": {"visit_ratio": 0.5}},
        )
    )
    paths = [(await router.chat())[1]["x-cascade-path"] for _ in range(60)]
    # The first answer came without log-probabilities; then sure and unsure ones alternate.
    assert paths[30:] == ["small", "small,large"] * 15


async def test_escalation_into_a_full_model_returns_the_collected_answer_and_says_so(engine, serve):
    small = await engine(chat=backend.answers("small", "low"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(10))
    models = {"large": {"escalations_per_second": 0.0, "escalation_burst": 2.0}}
    router = await serve(config_for({"small": [small], "large": [large]}, models=models))
    answers = [await router.chat() for _ in range(5)]
    assert [h["x-cascade-model"] for _, h, _ in answers] == ["large"] * 2 + ["small"] * 3
    status, headers, body = answers[-1]
    assert (status, body) == (200, backend.completion("small", "low"))
    assert headers["x-cascade-degraded"] == "escalation_budget"
    assert router.metric(
        "cascade_router_degraded_total", model="small", reason="escalation_budget"
    ) == 3  # fmt: skip
    [window] = router.worker.windows()
    assert [(m.name, m.escalated, m.degraded) for m in window.models] == [
        ("small", 2, 3), ("large", 0, 0)]  # fmt: skip


@pytest.mark.parametrize("down", ["refuses", "answers-500", "has-no-replica"])
@pytest.mark.parametrize(
    "when, broken, status, model",
    [
        ("Fail", "small", None, None),
        ("Skip", "small", 200, "large"),
        ("Fail", "large", None, None),
        ("Skip", "large", None, None),
        ("Answer", "large", 200, "small"),
        ("Answer", "small", None, None),
    ],
    ids=lambda value: str(value),
)
async def test_model_that_cannot_serve_follows_when_unavailable(
    engine, serve, down, when, broken, status, model
):
    expected = {"refuses": 502, "answers-500": 500, "has-no-replica": 503}[down]
    engines = {
        "small": [await engine(chat=backend.answers("small", "low"))],
        "large": [await engine(chat=backend.answers("large"), decisions=backend.decisions(10))],
    }
    router = await serve(config_for(engines, when_unavailable=when))
    if down == "answers-500":
        engines[broken][0].scripts["/v1/chat/completions"] = backend.fails(500)
    elif down == "refuses":
        engines[broken][0].scripts["/v1/chat/completions"] = backend.resets
    else:
        judge = JudgeConfig(model="judge")
        judging = await engine(decisions=backend.decisions(10))
        plan = config_for(
            {"small": engines["small"], "judge": [judging], "large": engines["large"]},
            when_unavailable=when,
            judge=judge,
            models={"judge": {"threshold": 101}, broken: {"endpoints": ()}},
        )
        router.apply(plan)
    got, headers, body = await router.chat()
    assert got == (status or expected)
    if model:
        assert headers["x-cascade-model"] == model
        assert ("x-cascade-degraded" in headers) == (when == "Answer")
    else:
        assert b"error" in body


@pytest.mark.parametrize(
    "fields, text, finish, reason",
    [
        ({}, " ", "stop", "empty"),
        ({}, "cut", "length", "truncated"),
        ({"tool_choice": "required"}, "words", "stop", "tool_call_missing"),
        ({"response_format": {"type": "json_object"}}, "{no", "stop", "invalid_json"),
    ],
    ids=["empty", "truncated", "tool-call-missing", "invalid-json"],
)
async def test_answer_that_cannot_be_right_is_escalated_unjudged(
    engine, serve, fields, text, finish, reason
):
    small = await engine(chat=backend.answers("small", text, finish=finish))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    router = await serve(config_for({"small": [small], "large": [large]}))
    _, headers, _ = await router.chat(**fields)
    assert headers["x-cascade-path"] == "small,large"
    assert "/v1/decisions" not in large.paths()
    assert router.metric("cascade_router_escalations_total", model="small", reason=reason) == 1


async def test_answer_cut_by_the_clients_own_limit_is_judged(engine, serve):
    small = await engine(chat=backend.answers("small", "cut", finish="length"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    router = await serve(config_for({"small": [small], "large": [large]}))
    _, headers, _ = await router.chat(max_tokens=1)
    assert headers["x-cascade-path"] == "small"


async def test_prompt_beyond_the_context_skips_the_model(engine, serve):
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    models = {"small": {"context_length": 100}}
    router = await serve(config_for({"small": [small], "large": [large]}, models=models))
    long = [{"role": "user", "content": "x" * 500}]
    assert (await router.chat(messages=long))[1]["x-cascade-path"] == "large"
    assert (await router.chat(max_tokens=200))[1]["x-cascade-path"] == "large"
    assert (await router.chat())[1]["x-cascade-path"] == "small"
    assert len(small.paths()) == 1


async def test_engine_without_decisions_is_asked_for_one_digit(engine, serve):
    async def digits(exchange: backend.Exchange) -> None:
        top = [("4", -0.2), (" 3", -2.0), ("x", -3.0)]
        entry = {"token": "4", "logprob": -0.2,
                 "top_logprobs": [{"token": t, "logprob": p} for t, p in top]}  # fmt: skip
        choice = {"index": 0, "message": {"content": "4"}, "logprobs": {"content": [entry]}}
        await exchange.reply(200, json.dumps({"choices": [choice]}).encode())

    small = await engine(chat=backend.answers("small"))
    judging = await engine(chat=digits)
    large = await engine(chat=backend.answers("large"))
    engines = {"small": [small], "judge": [judging], "large": [large]}
    router = await serve(
        config_for(engines, judge=JudgeConfig(model="judge"), models={"judge": {"threshold": 101}})
    )
    for _ in range(2):
        _, headers, _ = await router.chat()
        # exp(-0.2) and exp(-2.0) normalised: 25 x (4 x 0.8581 + 3 x 0.1419) = 96.5
        assert headers["x-cascade-scores"] == "small=96"
    assert judging.paths() == ["/v1/decisions", "/v1/chat/completions", "/v1/chat/completions"]
    asked = judging.bodies("/v1/chat/completions")[0]
    assert (asked["max_tokens"], asked["temperature"], asked["top_logprobs"]) == (1, 0, 20)


@pytest.mark.parametrize("asked", [None, 1], ids=["not-asked", "one-asked"])
@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
async def test_self_judge_drops_the_log_probabilities_it_asked_for(engine, serve, stream, asked):
    pairs = [[-0.1, -3.0], [-0.2, -2.0]]

    async def chat(exchange: backend.Exchange) -> None:
        body = exchange.request.json
        block = backend.logprobs(pairs, body["top_logprobs"]) if body.get("logprobs") else None
        if not stream:
            await exchange.reply(200, backend.completion("small", logprobs=block))
            return
        await exchange.start_stream()
        await exchange.chunk(backend.event("small", {"content": "four"}, logprobs=block))
        await exchange.chunk(backend.event("small", {}, "stop") + backend.DONE)
        await exchange.end()

    small = await engine(chat=chat)
    large = await engine(chat=backend.answers("large"))
    router = await serve(
        config_for({"small": [small], "large": [large]}, judge=JudgeConfig(type="Self"))
    )
    fields = {} if asked is None else {"logprobs": True, "top_logprobs": asked}
    _, headers, body = await router.chat(stream=stream, **fields)
    # Margins exp(-0.1) - exp(-3.0) = 0.855 and exp(-0.2) - exp(-2.0) = 0.683; 0.2 quantile: 0.718.
    assert headers["x-cascade-scores"] == "small=72"
    sent = small.bodies("/v1/chat/completions")[0]
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 2)
    wanted = None if asked is None else backend.logprobs(pairs, asked)
    if stream:
        first = json.loads(body.split(b"\n\n")[0].removeprefix(b"data: "))
        assert first["choices"][0]["logprobs"] == wanted
    else:
        plain = json.loads(backend.completion("small", logprobs=wanted))
        assert json.loads(body) == plain


async def test_steered_threshold_keeps_the_share_while_uncalibrated(engine, serve):
    scores = [float(s) for s in range(0, 100, 2)] * 8
    small = await engine(chat=backend.answers("small"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(*scores))
    models = {"small": {"threshold": 90, "steer_quantile": 0.25}}
    router = await serve(config_for({"small": [small], "large": [large]}, models=models))
    assert router.worker.windows()[0].models[0].threshold_in_force == 90
    paths = [(await router.chat())[1]["x-cascade-path"] for _ in range(300)]
    assert 0.2 < paths[100:].count("small,large") / 200 < 0.3
    in_force = router.worker.windows()[0].models[0].threshold_in_force
    assert 20 <= in_force <= 30
    router.worker.report()
    assert router.metric("cascade_router_threshold_in_force", model="small") == in_force


async def test_text_completions_walk_the_same_way(engine, serve):
    body = json.dumps({"choices": [{"index": 0, "text": "four", "finish_reason": "stop"}],
                       "usage": {"prompt_tokens": 3, "completion_tokens": 1}}).encode()  # fmt: skip

    async def complete(exchange: backend.Exchange) -> None:
        await exchange.reply(200, body)

    small = await engine(completions=complete)
    large = await engine(completions=complete, decisions=backend.decisions(100))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, got = await router.post(
        {"model": "chat", "prompt": "2 + 2 ="}, "/v1/completions"
    )
    assert (status, got, headers["x-cascade-scores"]) == (200, body, "small=100")
    asked = large.bodies("/v1/decisions")[0]["input"]
    assert asked == {"conversation": [{"role": "user", "content": "2 + 2 ="}], "answer": "four"}


async def test_answer_beyond_the_limit_is_escalated(engine, serve):
    small = await engine(chat=backend.answers("small", "x" * 5000))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(100))
    limits = {"answer_bytes": 2048}
    router = await serve(config_for({"small": [small], "large": [large]}, limits=limits))
    for stream in (False, True):
        status, headers, _ = await router.chat(stream=stream)
        assert (status, headers["x-cascade-path"]) == (200, "small,large")


async def test_forced_model_is_asked_alone_and_passes_byte_for_byte(engine, serve):
    small = await engine(chat=backend.answers("small", "cheap"))
    large = await engine(chat=backend.answers("large"), decisions=backend.decisions(0))
    router = await serve(config_for({"small": [small], "large": [large]}))
    status, headers, body = await router.post({"model": "chat/small", "messages": QUESTION})
    assert (status, body) == (200, backend.completion("small", "cheap"))
    assert headers["x-cascade-model"] == "small"
    assert "x-cascade-scores" not in headers
    assert large.paths() == []
