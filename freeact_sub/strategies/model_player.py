"""`ModelPlayer`: a model proposes cells of Python and evaluates their results; a child simulates."""

from collections.abc import Sequence
from typing import Any, Final

from freeact_sub.strategies.agent_like import AgentLike
from freeact_sub.strategies.states import NEUTRAL, Evaluation, SearchNode, Simulation

SIMULATED_TURNS: Final = 10
REWARDS: Final = {"completed": 1.0, "failed": 0.0}
MAX_OUTPUT_CHARS: Final = 2000

PROPOSE: Final = """\
{situation}

Propose {n} different next cells: a JSON array of {n} texts, each the code of one cell. They are alternatives, each tried \
in a copy of the kernel as it is now; let them differ in the way, not in details.{tried}"""
EVALUATE: Final = """\
{situation}

How promising is this state of the work? Give a score from 0 (hopeless) to 10 (the task is done, and right), the reason in \
one sentence, and whether the task is done."""
SIMULATE: Final = "Go on with this task, in this kernel, and finish it.\n\n{situation}"


class ModelPlayer:
    """Plays with an agent's model; actions are cells."""

    def __init__(self, agent: AgentLike, task: str, **options: Any) -> None:
        """Make a player.

        Args:
            agent: Asks the model, and starts the children that simulate.
            task: The task.
            options: Options of these children, such as `own_files=True`.
        """
        self._options = options
        self._agent = agent
        self._task = task

    async def propose(self, node: SearchNode, n: int) -> Sequence[str]:
        """Returns up to n distinct actions that could follow; those of `node.children` were tried already."""
        tried = "".join(f"\n\nTried already, do not repeat it:\n{child.action}" for child in node.children)
        prompt = PROPOSE.format(situation=self._situation(node), n=n, tried=tried)
        cells: list[str] = await self._agent.ask(prompt, output=list[str])
        return [cell for cell in cells if cell.strip()][:n]

    async def evaluate(self, node: SearchNode) -> Evaluation:
        """Judges how promising a state is."""
        found: Evaluation = await self._agent.ask(EVALUATE.format(situation=self._situation(node)), output=Evaluation)
        return found

    async def simulate(self, node: SearchNode) -> Simulation:
        """Starts a child in a branch of the state. Scores 1 if it completes, 0 if it fails, otherwise 0.5."""
        prompt = SIMULATE.format(situation=self._situation(node))
        options: dict[str, Any] = {
            **self._options,
            "branch_of": node.state,
            "description": f"simulates {node.name}",
            "max_turns": SIMULATED_TURNS,
        }
        try:
            result = await self._agent.task(prompt, **options)
        except Exception as error:  # noqa: BLE001  # border: why a child cannot start says nothing about the state
            status = getattr(getattr(error, "result", None), "status", "")
            return Simulation(score=REWARDS.get(status, NEUTRAL))
        return Simulation(score=REWARDS.get(result.status, NEUTRAL), answer=result.output)

    def _situation(self, node: SearchNode) -> str:
        cells = [f"Cell {each.name}:\n{each.action}\nOutput ({each.status}):\n{_cut(each.output)}" for each in node.path]
        return "\n\n".join([f"The task: {self._task}", *(cells or ["Nothing was run for it so far."])])


def _cut(text: str) -> str:
    return text if len(text) <= MAX_OUTPUT_CHARS else f"{text[:MAX_OUTPUT_CHARS]} […]"
