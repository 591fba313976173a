"""An agent's story as notebooks draw it."""

from freeact_sub.notebook.render import LIMITS
from freeact_sub.show.agent_story import AgentStory, StoryItems


def block_of(first):
    """The story of the agent that this event is from."""
    story = AgentStory.of(first)
    story.kept = StoryItems(LIMITS)
    story.observe(first)
    return story


def apply(story, event):
    """Handles an event; says whether what is settled has changed."""
    version = story.kept.version
    story.observe(event)
    return story.kept.version != version
