"""`FanOut`: the quote of many requests, of which a few have run."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from freeact_sub.actions import Action, Topic
from freeact_sub.text import dollars_spread, duration, short_number, visible, whole_line


@dataclass(frozen=True, kw_only=True)
class FanOut(Action):
    """Many requests to a model, of which a few have run: what the rest will take, and the bound that is agreed."""

    form = "its name"
    main = "what"
    whole = True
    acts_outside = False
    topic: ClassVar[Topic] = "fan-outs"

    kind: Literal["fan_out"] = "fan_out"
    what: str
    """Its name, as `map`."""
    more: int = 0
    """The requests or children that are left, corrections not counted."""
    tokens: tuple[float, float, float] = (0, 0, 0)
    """About so many tokens, and the bounds that the number probably lies within."""
    cost_usd: tuple[float, float, float] | None = None
    """The same of dollars. None: the model's price is not known."""
    seconds: float = 0
    bound: str = ""
    """The bound that an approval agrees to, as `$3.00`; what has been spent ends there."""
    cheaper: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    """By name the models of the setting `models` that would take fewer dollars: see `ApprovalRequest.approve`."""

    @property
    def summary(self) -> str:
        return f"{self.what}: {self.figures}"

    @property
    def question(self) -> str:
        return f"asks to go on with {whole_line(self.what)} within {whole_line(self.bound) or 'the bounds of the run'}"

    @property
    def figures(self) -> str:
        """What the rest takes, in one sentence."""
        about, low, high = (float(f"{amount:.2g}") for amount in self.tokens)
        figures = [f"about {short_number(about)} tokens ({short_number(low)} to {short_number(high)})"]
        if self.cost_usd is not None:
            figures.append(dollars_spread(self.cost_usd))
        return f"{self.more:,} more: {', '.join([*figures, duration(self.seconds)])}."

    @property
    def text(self) -> str:
        within = f" Run within {visible(self.bound)}?" if self.bound else ""
        others = enumerate(self.cheaper.items(), start=1)
        choices = (f"{number} with {visible(name)}: {dollars_spread(cost)}" for number, (name, cost) in others)
        return "\n".join([f"{visible(self.what)}: {self.figures}{within}", *choices])
