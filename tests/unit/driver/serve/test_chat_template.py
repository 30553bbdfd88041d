"""Chat templates: what they may do, and what ends them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytest.importorskip("jinja2", reason="the extra `serve` is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.serve import chat_template, template_process
from tessera.driver.serve.api_errors import BadRequest
from tessera.driver.serve.chat_template import ChatFormat, ChatTemplate

MESSAGES = [{"role": "user", "content": "a<b"}, {"role": "assistant", "content": "\u20ac"}]


def rendered(text: str, **values: object) -> str:
    return template_process.render(template_process.compiled(text), values, 1000)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("{% for m in messages %}[{{ m.role }}] {{ m['content'] }}\n{% endfor %}", None),
        ("{{ messages | tojson }}", None),
        ("{%- for m in messages %}{% if loop.last %}{% break %}{% endif %}{{ m.role }}"
         "{% endfor %}", "user"),
        ("{% generation %}\n{{ messages[0].content }}{% endgeneration %}!", "a<b!"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
         "{% endfor %}{{ ns.n }}", "2"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{{ dict(a=1)['a'] }}", "1"),
    ],
)  # fmt: skip
def test_templates_are_read_as_transformers_reads_them(text: str, wanted: str | None) -> None:
    told = {
        "{% for m": "[user] a<b\n[assistant] \u20ac\n",
        "{{ messa": '[{"role": "user", "content": "a<b"}, {"role": "assistant", '
        '"content": "\u20ac"}]',
    }
    assert rendered(text, messages=MESSAGES) == (wanted or told[text[:8]])


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ messages.append(1) }}",
        "{{ ('%s' | format)('x').__init__.__globals__ }}",
        "{{ self._TemplateReference__context.eval_ctx.environment.loader.x }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ open('/etc/passwd').read() }}",
    ],
)
def test_nothing_in_a_template_gets_out_of_the_sandbox(text: str) -> None:
    from jinja2 import TemplateError

    with pytest.raises((TemplateError, TypeError)):
        rendered(text, messages=list(MESSAGES))


BOMB = "{% if messages[0].content == 'bomb' %}BOMB{% endif %}{{ messages[0].content }}"


@pytest.mark.parametrize(
    ("bomb", "said"),
    [
        ("{{ raise_exception('only one user') }}", "only one user"),
        ("{{ 1 // 0 }}", "by zero"),
        ("{{ nothing.of.that }}", "undefined"),
        ("{% for a in range(9999) %}{{ 'x' * 999 }}{% endfor %}", "more than 4194304 characters"),
        ("{{ 'x' * 4000000000 }}", "memory"),
        ("{{ (8 + messages | length) ** 387420489 }}", "processor time"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
         "processor time"),
    ],
)  # fmt: skip
def test_a_bomb_is_one_error_and_the_next_chat_is_answered(
    bomb: str, said: str, made: Callable[[str], ChatTemplate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_template, "CPU_S", 0)  # a second is left then
    template = made(BOMB.replace("BOMB", bomb))
    for _ in range(1 + ("processor" not in said)):
        with pytest.raises(BadRequest, match=said) as refusal:
            template.render([{"role": "user", "content": "bomb"}], {})
        assert (refusal.value.status, refusal.value.field) == (400, "messages")
        assert template.render([{"role": "user", "content": "well"}], {}) == "well"


@pytest.fixture
def made(request: pytest.FixtureRequest) -> Callable[[str], ChatTemplate]:
    def make(text: str) -> ChatTemplate:
        template = ChatTemplate(ChatFormat(template=text, tokens={"bos_token": "<s>"}))
        request.addfinalizer(template.close)
        return template

    return make


def test_tokens_and_further_values_reach_a_template(made: Callable[[str], ChatTemplate]) -> None:
    template = made("{{ bos_token }}{{ thinks }}{% if add_generation_prompt %}>{% endif %}")
    assert template.render(MESSAGES, {"thinks": "no"}) == "<s>no>"
    with pytest.raises(BadRequest, match="must not have `messages`"):
        template.render(MESSAGES, {"messages": []})


@pytest.mark.parametrize("text", ["{% if %}", "{{ raise_exception('never') }}"])
def test_a_template_that_takes_no_message_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(TesseraError, match=r"TSR5066.*does not take a plain message"):
        ChatTemplate(ChatFormat(template=text))
