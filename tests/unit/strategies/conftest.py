"""What tests of strategies share: an agent that is no agent, and keeps what it is asked."""

import pytest


class FakeAgent:
    """Answers by a function of prompt and history. `asked` has every request and `labels` its label, `tasks` every child, in order."""

    def __init__(self, answer):
        self.answer = answer
        self.asked, self.tasks, self.labels = [], [], []
        self.at_work = 0

    async def ask(self, prompt, *, model=None, output=None, history=(), label=""):
        self.labels.append(label)
        self.asked.append({"prompt": prompt, "model": model, "output": output, "history": list(history)})
        return await self._answered(prompt, self.asked[-1])

    async def task(self, prompt, **options):
        self.tasks.append({"prompt": prompt, **options})
        output = await self._answered(prompt, self.tasks[-1])
        return type("Result", (), {"output": output, "status": "completed", "agent_id": f"agent-{len(self.tasks)}"})

    async def _answered(self, prompt, request):
        self.at_work += 1
        try:
            answer = self.answer(prompt, request)
            answer = await answer if hasattr(answer, "__await__") else answer
            if isinstance(answer, Exception):
                raise answer
            return answer
        finally:
            self.at_work -= 1


@pytest.fixture
def fake():
    return FakeAgent
