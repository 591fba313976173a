"""Worlds to search in, without kernels: states that can be copied, and scripted players."""

import random
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace

from support.waiting import turns

from freeact_sub.strategies import Evaluation, Simulation


class Words:
    """A state is a word; an action adds a letter to it. `world.made` and `world.open` are all states and those not closed."""

    def __init__(self, world=None, word=""):
        self.world = world or SimpleNamespace(made=[], open=set(), executed=[])
        self.word = word
        self.world.made.append(self)
        self.world.open.add(self)

    async def branch(self, description=""):
        del description
        assert self in self.world.open, "a state that is closed is not gone on with"
        await turns()
        return Words(self.world, self.word)

    async def execute(self, code):
        self.world.executed.append(self.word + code)
        await turns()
        self.word += code
        return SimpleNamespace(status="ok", text=self.word)

    async def close(self):
        await turns()
        self.world.open.discard(self)


class Hidden:
    """One word is the answer. The evaluation tells, with noise, whether a beginning is right.

    A simulation is a child at work: from a wrong beginning it fails, from a right one it comes to no end, or, if that is long
    enough, to the answer.
    """

    def __init__(self, seed, letters="abc", length=6, enough=3):
        self.random = random.Random(seed)
        self.enough = enough
        self.letters = letters
        self.answer = "".join(self.random.choice(letters) for _ in range(length))
        self.calls = 0

    async def propose(self, node, n):
        self.calls += 1
        await turns()
        return self.random.sample(self.letters, min(n, len(self.letters)))

    async def evaluate(self, node):
        self.calls += 1
        await turns()
        word = node.output
        if len(word) == len(self.answer):
            return Evaluation(score=10 if word == self.answer else 0, reason="the end", done=True)
        right = next((at for at, (one, other) in enumerate(zip(word, self.answer, strict=False)) if one != other), len(word))
        noise = self.random.uniform(-1, 1)
        return Evaluation(score=max(0, min(9, (8 if right == len(word) else 3) + noise)), reason=f"{word}…")

    async def simulate(self, node):
        self.calls += 1
        await turns()
        right = self.answer.startswith(node.output)
        if right and len(node.output) >= self.enough:
            return Simulation(score=1.0, answer=self.answer)
        return Simulation(score=0.5 if right else 0.0)


def sampled(seed, calls, letters="abc", length=6):
    """Plain sampling with as many calls: whole words, a call a letter, each guessed; whether one of them was right."""
    hidden = Hidden(seed, letters, length)
    guesses = random.Random(seed + 1000)
    tries = calls // length
    return any("".join(guesses.choice(letters) for _ in range(length)) == hidden.answer for _ in range(tries))


@dataclass(frozen=True)
class Numbers:
    """The numbers that are left in a game of 24."""

    left: tuple[Fraction, ...]

    def moves(self):
        """All moves, as texts, in a fixed order."""
        found = {}
        for i, a in enumerate(self.left):
            for j, b in enumerate(self.left):
                for sign in "+-*/":
                    if i != j and not (sign in "+*" and i > j) and not (sign == "/" and b == 0):
                        found.setdefault(f"{a} {sign} {b}")
        return list(found)

    def after(self, move):
        a, sign, b = move.split()
        one, other = Fraction(a), Fraction(b)
        rest = list(self.left)
        rest.remove(one)
        rest.remove(other)
        value = {"+": one + other, "-": one - other, "*": one * other, "/": one / other if other else None}[sign]
        return Numbers(tuple(sorted([*rest, value])))

    def __str__(self):
        return " ".join(map(str, self.left))

    @staticmethod
    def of(text):
        return Numbers(tuple(sorted(Fraction(each) for each in text.split())))


class Player24:
    """The scripted player of the game of 24: eight moves of each state, and a value that follows from its numbers."""

    moves_of_each = 8

    def __init__(self):
        self.proposed, self.valued = [], []

    def moves(self, numbers):
        self.proposed.append(str(numbers))
        shuffled = numbers.moves()
        random.Random(str(numbers)).shuffle(shuffled)
        return shuffled[: self.moves_of_each]

    def value(self, numbers):
        """From 0 to 10, as tree of thoughts' `sure`, `likely` and `impossible`, but a guess before the last move."""
        self.valued.append(str(numbers))
        if len(numbers.left) == 1:
            return 10 if numbers.left[0] == 24 else 0
        if len(numbers.left) == 2:
            return 9 if Numbers((Fraction(24),)) in [numbers.after(move) for move in numbers.moves()] else 1
        return 2 + random.Random(f"value of {numbers}").random() * 5

    async def propose(self, node, n):
        return self.moves(Numbers.of(node.output or node.state.left))[:n]

    async def evaluate(self, node):
        numbers = Numbers.of(node.output)
        return Evaluation(score=self.value(numbers), done=len(numbers.left) == 1)

    async def simulate(self, node):
        raise AssertionError("breadth-first search does not simulate")


class Table:
    """The state of a game of 24: the numbers on the table."""

    def __init__(self, left, log):
        self.left = left
        self.log = log

    async def branch(self, description=""):
        del description
        return Table(self.left, self.log)

    async def execute(self, code):
        self.log.append((self.left, code))
        self.left = str(Numbers.of(self.left).after(code))
        return SimpleNamespace(status="ok", text=self.left)

    async def close(self):
        self.left = None


def tree_of_thoughts(puzzle, player, width=5, steps=3):
    """The paper's breadth-first search (propose, value, greedy): the states of the last level, the best first."""
    beam = [Numbers.of(puzzle)]
    for _ in range(steps):
        new = [numbers.after(move) for numbers in beam for move in player.moves(numbers)]
        values = [player.value(numbers) for numbers in new]
        order = sorted(range(len(new)), key=lambda at: values[at], reverse=True)
        ranked = [(new[at], values[at]) for at in order]
        beam = [numbers for numbers, _ in ranked[:width]]
    return ranked
