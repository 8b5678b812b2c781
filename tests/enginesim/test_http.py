"""The HTTP surface, over real connections to a started process."""

from typing import Any

import numpy as np
import orjson
import pytest

from cascade_enginesim import command, machine, quality, settings
from tests.enginesim import processes
from tests.enginesim.processes import Process


def content(reply: processes.Reply) -> str:
    return str(reply.json["choices"][0]["message"]["content"])


def test_an_answer_says_that_it_is_simulated(small: Process) -> None:
    reply = small.chat("hello [tokens=20]")
    assert reply.status == 200
    assert reply.headers["x-simulated-engine"] == "true"
    assert reply.json["metadata"]["simulated"] is True
    assert small.request("/model_info").json["simulated"] is True
    assert any("SIMULATED" in event for event in small.events())


def test_a_chat_answer_has_the_shape_of_the_real_one(small: Process) -> None:
    answer = small.chat("hello [tokens=20]").json
    assert answer["object"] == "chat.completion"
    assert answer["model"] == "chat"
    choice = answer["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["role"] == "assistant"
    assert len(choice["message"]["content"].split()) == 20
    assert answer["usage"]["completion_tokens"] == 20
    used = answer["usage"]
    assert used["total_tokens"] == used["prompt_tokens"] + used["completion_tokens"]


def test_max_tokens_cuts_the_answer_with_reason_length(small: Process) -> None:
    answer = small.chat("hello [tokens=50]", max_tokens=7).json
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 7


@pytest.mark.parametrize(
    ("fields", "tokens"),
    [
        pytest.param({"ignore_eos": True, "max_tokens": 40}, 40, id="ignore-eos"),
        pytest.param({"min_tokens": 25, "max_tokens": 40}, 25, id="min-tokens"),
        pytest.param({"max_completion_tokens": 3}, 3, id="max-completion-tokens"),
    ],
)
def test_a_request_can_set_the_length_otherwise(
    small: Process, fields: dict[str, Any], tokens: int
) -> None:
    answer = small.chat("hello [tokens=10]", **fields).json
    assert answer["usage"]["completion_tokens"] == tokens
    assert len(answer["choices"][0]["message"]["content"].split()) == tokens


def test_the_same_prompt_gets_the_same_answer_and_another_model_another_one(
    small: Process, large: Process
) -> None:
    first, second = (content(small.chat("what is a cascade?")) for _ in range(2))
    assert first == second
    assert first != content(small.chat("what is a judge?"))
    assert first != content(large.chat("what is a cascade?"))


def test_choices_differ_and_are_counted_together(small: Process) -> None:
    answer = small.chat("hello [tokens=10]", n=3).json
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 30


def test_a_stream_joins_to_the_plain_answer_and_ends_with_usage(small: Process) -> None:
    plain = small.chat("tell me [tokens=300]")
    streamed = small.chat(
        "tell me [tokens=300]", stream=True, stream_options={"include_usage": True}
    )
    assert streamed.headers["content-type"].startswith("text/event-stream")
    *chunks, last = streamed.events
    assert chunks[0]["choices"][0]["delta"]["role"] == "assistant"
    deltas = [chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks]
    assert "".join(deltas) == content(plain)
    assert len([delta for delta in deltas if delta]) > 1
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []
    assert last["usage"] == plain.json["usage"]
    assert last["metadata"]["simulated"] is True


def test_a_stream_has_no_usage_unless_asked(small: Process) -> None:
    events = small.chat("hello [tokens=5]", stream=True).events
    assert all(event["choices"] and event["usage"] is None for event in events)


def test_streamed_choices_are_told_apart_by_index(small: Process) -> None:
    events = small.chat("hello [tokens=9]", stream=True, n=2).events
    texts = {0: "", 1: ""}
    for event in events:
        choice = event["choices"][0]
        texts[choice["index"]] += choice["delta"].get("content") or ""
    assert len(texts[0].split()) == len(texts[1].split()) == 9
    assert texts[0] != texts[1]


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "stream"])
def test_log_probabilities_cover_every_token(small: Process, stream: bool) -> None:
    reply = small.chat("hello [tokens=30]", logprobs=True, top_logprobs=3, stream=stream)
    if stream:
        blocks = [e["choices"][0]["logprobs"] for e in reply.events if e["choices"][0]["logprobs"]]
        entries = [entry for block in blocks for entry in block["content"]]
    else:
        entries = reply.json["choices"][0]["logprobs"]["content"]
    assert len(entries) == 30
    for entry in entries:
        assert bytes(entry["bytes"]).decode() == entry["token"]
        assert entry["logprob"] < 0
        assert len(entry["top_logprobs"]) == 3


def test_log_probabilities_are_left_out_unless_asked(small: Process) -> None:
    assert small.chat("hello [tokens=3]").json["choices"][0]["logprobs"] is None


def test_completions_answer_several_prompts_with_their_own_log_probabilities(
    small: Process,
) -> None:
    body = {"prompt": ["one [tokens=4]", "two [tokens=6]"], "max_tokens": 50, "logprobs": 2}
    answer = small.request("/v1/completions", body).json
    assert answer["object"] == "text_completion"
    assert answer["model"] == "small"
    sizes = [len(choice["logprobs"]["tokens"]) for choice in answer["choices"]]
    assert sizes == [4, 6]
    for choice in answer["choices"]:
        block = choice["logprobs"]
        assert "".join(block["tokens"]) == choice["text"]
        for offset, token in zip(block["text_offset"], block["tokens"], strict=True):
            assert choice["text"][offset:].startswith(token)


def test_completions_stream_too(small: Process) -> None:
    body = {"prompt": "one [tokens=40]", "max_tokens": 50}
    plain = small.request("/v1/completions", body).json["choices"][0]["text"]
    events = small.request("/v1/completions", {**body, "stream": True}).events
    assert "".join(event["choices"][0]["text"] for event in events) == plain


def test_an_answer_in_json_is_json(small: Process) -> None:
    reply = small.chat("hello [tokens=12]", response_format={"type": "json_object"})
    assert orjson.loads(content(reply))["answer"]
    assert reply.json["usage"]["completion_tokens"] == 12


def test_decisions_tell_good_from_bad_answers(small: Process, large: Process) -> None:
    """Both sides are checked against the truth that the seed fixes."""
    able = quality.ability(62)
    scores: dict[bool, list[float]] = {True: [], False: []}
    for i in range(40):
        prompt = f"question {i} [tokens=8]"
        right = quality.is_correct(0, processes.MODEL, prompt, able)
        scores[right].append(25 * large.score(content(small.chat(prompt)))["score"])
    assert min(len(found) for found in scores.values()) >= 8
    assert np.mean(scores[True]) > 80
    assert np.mean(scores[False]) < 50
    pairs = [good > bad for good in scores[True] for bad in scores[False]]
    assert np.mean(pairs) > 0.95


@pytest.mark.parametrize("levels", [2, 5, 10])
def test_a_score_is_the_mean_over_its_levels(small: Process, levels: int) -> None:
    answer = small.score("an answer", levels)
    probabilities = answer["probabilities"]
    assert list(probabilities) == [str(i) for i in range(levels)]
    assert answer["score"] == pytest.approx(
        sum(int(level) * p for level, p in probabilities.items())
    )
    assert 0 < answer["label_mass"] < 1


def test_choice_and_yes_no_questions_are_answered_beside_the_score(small: Process) -> None:
    body = processes.decision("an answer")
    body["questions"] += [
        {
            "id": "which",
            "type": "choice",
            "question": "?",
            "options": [{"name": "a"}, {"name": "b"}],
        },
        {"id": "true", "type": "yes_no", "question": "?"},
    ]
    reply = small.request("/v1/decisions", body).json
    assert set(reply["answers"]) == {"quality", "which", "true"}
    assert reply["answers"]["which"]["choice"] in ("a", "b")
    assert set(reply["answers"]["true"]["probabilities"]) == {"yes", "no"}
    assert reply["usage"]["prompt_tokens"] == reply["usage"]["total_tokens"] > 0
    assert reply["prompt_format_version"] == 1


def broken(**changes: Any) -> dict[str, Any]:
    return {**processes.decision("an answer"), **changes}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        pytest.param("/v1/chat/completions", {"model": "m"}, "messages", id="no-messages"),
        pytest.param("/v1/chat/completions", [], "body", id="no-object"),
        pytest.param(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], "max_tokens": 0},
            "max_tokens: 0 must be an integer from 1",
            id="max-tokens",
        ),
        pytest.param(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], "top_logprobs": 5},
            "top_logprobs: needs logprobs",
            id="top-logprobs",
        ),
        pytest.param("/v1/completions", {}, "prompt", id="no-prompt"),
        pytest.param("/v1/decisions", broken(input=" "), "input", id="blank-input"),
        pytest.param("/v1/decisions", broken(questions=[]), "questions", id="no-questions"),
        pytest.param("/v1/decisions", broken(extra=1), "extra", id="unknown-member"),
        pytest.param(
            "/v1/decisions",
            broken(prompt_format_version=2),
            "version 2 is not served",
            id="version",
        ),
        pytest.param(
            "/v1/decisions",
            broken(questions=[{"id": "q", "type": "score", "question": "?", "levels": ["one"]}]),
            "levels",
            id="one-level",
        ),
    ],
)  # fmt: skip
def test_a_bad_request_is_400_in_the_engines_error_shape(
    small: Process, path: str, body: Any, said: str
) -> None:
    reply = small.request(path, body)
    assert reply.status == 400
    assert reply.json["object"] == "error"
    assert reply.json["code"] == 400
    assert said in reply.json["message"]


def test_a_prompt_beyond_the_context_is_400(tmp_path: Any) -> None:
    with processes.engine(tmp_path / "log", "--context-length", "512") as engine:
        reply = engine.chat("word " * 600)
        assert reply.status == 400
        assert "longer than the model's context length (512 tokens)" in reply.json["message"]
        reply = engine.chat("word " * 300, max_tokens=400)
        assert reply.status == 400
        assert "maximum context length of 512" in reply.json["message"]
        judged = engine.request("/v1/decisions", processes.decision("word " * 600))
        assert judged.status == 400
        assert "does not fit the context length of 512" in judged.json["message"]


def test_models_and_info_show_the_served_name(small: Process) -> None:
    listed = small.request("/v1/models").json["data"]
    assert [model["id"] for model in listed] == ["small"]
    assert listed[0]["max_model_len"] == 131_072
    assert small.request("/v1/models/small").json["id"] == "small"
    assert small.request("/v1/models/other").status == 404
    assert small.request("/model_info").json["model_path"] == processes.MODEL
    assert small.request("/server_info").json["tp_size"] == 1


def test_an_unknown_path_is_404(small: Process) -> None:
    assert small.request("/v2/none").status == 404


@pytest.mark.parametrize("path", ["/ready", "/health", "/health_generate", "/ping"])
def test_probes_are_200_while_up(small: Process, path: str) -> None:
    assert small.request(path).status == 200


def test_metrics_carry_the_engines_names_and_labels(small: Process) -> None:
    small.chat("hello [tokens=5]", stream=True)
    text = small.request("/metrics").raw.decode()
    for name in ("num_running_reqs", "num_queue_reqs", "token_usage", "max_total_num_tokens"):
        assert (
            f'sglang:{name}{{engine_type="unified",model_name="small",moe_ep_rank="0",'
            'pp_rank="0",tp_rank="0"}' in text
        )
    assert 'generation_tokens_total{engine_type="unified",is_streaming="true"' in text
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "queue_time_seconds",
    ):
        assert f"sglang:{name}_bucket" in text


def test_metrics_need_their_flag(large: Process) -> None:
    assert large.request("/metrics").status == 404


def test_loads_report_the_limits_of_the_replica(small: Process, large: Process) -> None:
    load = large.request("/v1/loads").json
    assert load["num_accelerators"] == 4
    launch = command.Launch(processes.MODEL, "small")
    expected = machine.build(launch, settings.Settings()).kv_tokens
    assert small.request("/v1/loads").json["loads"][0]["max_total_num_tokens"] == expected
    text = small.request("/v1/loads?format=prometheus").raw.decode()
    assert f'sglang_max_total_num_tokens{{dp_rank="0"}} {expected}' in text


def test_times_in_the_metadata_follow_the_step_model(large: Process) -> None:
    """Modelled time, so the machine's speed does not matter."""
    launch = command.Launch("meta-llama/Llama-3.1-70B-Instruct", "x", tensor=4)
    step = machine.build(launch, settings.Settings()).step
    answer = large.chat("word " * 1000 + "[tokens=401]").json
    prompt = answer["usage"]["prompt_tokens"]
    times = answer["metadata"]["modelled_seconds"]
    first = 0.010 + step.prefill_step_seconds(prompt, float(prompt) ** 2)
    decode = 400 * step.decode_step_seconds(1, prompt + 200)
    assert times["first"] == pytest.approx(first, rel=0.02)
    assert times["whole"] - times["first"] == pytest.approx(decode, rel=0.02)
