"""A response waits for what shows that it stays; all that happens after it is shown after it."""

from support.sample_events import CHILD, ROOT

from freeact_sub.events import AgentEvent, AgentMessage, Cancelled, Notice, Response, ResponseChunk
from freeact_sub.show.agent_story import Stories
from freeact_sub.show.teller import blocks
from freeact_sub.terminal.display import SettledResponses


def shown(*events: AgentEvent) -> list[str]:
    views, settled = Stories(), SettledResponses()
    return [
        f"{event.type} {getattr(event, 'content', '')}".strip()
        for each in events
        for event, _ in settled.settled(each, blocks(views.observe(each), each))
    ]


def test_what_comes_after_a_response_is_shown_after_it() -> None:
    said = Response(**ROOT, content="I look first.")
    asks = AgentMessage(**ROOT, recipient_id=CHILD["agent_id"], kind="request", content="which?")
    assert shown(said, Cancelled(**ROOT)) == ["Response I look first.", "Cancelled"]
    assert shown(said, asks) == ["Response I look first.", "AgentMessage which?"]


def test_a_notice_about_a_response_is_shown_after_it_even_if_the_next_one_begins_with_the_same_words() -> None:
    said, notice = Response(**ROOT, content="done"), Notice(**ROOT, content="a hook has the agent go on: run the tests")
    told = ["Response done", "Notice a hook has the agent go on: run the tests"]
    assert shown(said, notice) == told
    assert shown(said, notice, Response(**ROOT, content="done, and tested"), Cancelled(**ROOT))[:3] == [
        *told,
        "Response done, and tested",
    ]


def test_a_response_that_is_asked_for_anew_is_shown_once() -> None:
    begun, again = Response(**ROOT, content="I look"), Response(**ROOT, content="I look first.")
    between = [ResponseChunk(**ROOT, content="I look first.")]
    assert shown(begun, *between, again, Cancelled(**ROOT))[-2:] == ["Response I look first.", "Cancelled"]
    assert "Response I look" not in shown(begun, *between, again, Cancelled(**ROOT))
