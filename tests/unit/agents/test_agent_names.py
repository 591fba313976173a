"""The short ids of agents: one function makes them, a root gives none twice, and a name finds one agent or names several."""

import itertools
import secrets

from support.agents import read, task
from support.tables import each

from freeact_sub.agent_names import agent_name, agents_meant, candidates, short_id

LABELS = {
    "agent-0f000000": "",
    "agent-a3f20001": "north",
    "agent-a3e00002": "north 2",
    "agent-badd0003": "add figures",
    "agent-feed0004": "a3f2",
}


@each(
    ("agent_id", "short"),
    [
        ("agent-a3f29c01", "a3f2"),
        ("agent-00000000", "0000"),
        ("agent-a3f2", "agent-a3f2"),
        ("agent-A3F29C01", "agent-A3F29C01"),
        ("agent-a3f29c01:sub", "agent-a3f29c01:sub"),
        ("node-a3f29c01", "node-a3f29c01"),
        ("mine\x1b[2J\n", "mine"),
    ],
)
def test_the_short_id_is_four_digits_of_an_id_and_all_of_another_form(agent_id: str, short: str) -> None:
    assert short_id(agent_id) == short
    assert agent_name(agent_id, "the north") == f"{short} the north".strip()


@each(
    ("words", "meant"),
    [
        ("a3f2", ["agent-a3f20001"]),  # an id counts before a label
        ("agent-a3f2", ["agent-a3f20001"]),
        ("agent-a3f20001", ["agent-a3f20001"]),
        ("A3F2", ["agent-a3f20001"]),
        ("a3", ["agent-a3f20001", "agent-a3e00002", "agent-feed0004"]),
        ("north", ["agent-a3f20001"]),  # a whole label counts before a part
        ("nor", ["agent-a3f20001", "agent-a3e00002"]),
        ("a3e0 north 2", ["agent-a3e00002"]),
        ("add", ["agent-badd0003"]),
        ("agent-", list(LABELS)),
        ("zzz", []),
        ("", []),
        (" ", []),
    ],
)
def test_a_name_means_the_agents_that_a_person_would_say(words: str, meant: list[str]) -> None:
    assert agents_meant(words, LABELS) == meant


def test_candidates_are_named_and_bounded() -> None:
    assert candidates(agents_meant("a3", LABELS), LABELS) == "a3f2 north, a3e0 north 2, feed a3f2"
    many = {f"agent-{number:04x}0000": "" for number in range(1_000)}
    assert candidates([*many], many).endswith("0007 and 992 more")


async def test_no_two_agents_of_a_root_have_one_short_id(make, monkeypatch) -> None:
    """Ids that come by chance begin with the same digits again and again."""
    numbers = itertools.count()
    monkeypatch.setattr(secrets, "token_hex", lambda size: f"{next(numbers) % 40:04x}{next(numbers):0{2 * size - 4}x}")

    def script(messages, _info):
        prompt = str(messages[0].parts[-1].content)
        return "done" if prompt != "go" or len(messages) > 1 else [task(f"work {number}") for number in range(12)]

    async with make(script) as agent:
        await read(agent.run("go"))
        await read(agent.run("more"))
        ids = [info.agent_id for info in agent.agents()]
    assert len(ids) == 13
    assert len({short_id(agent_id) for agent_id in ids}) == 13
