"""Skills: guides to kinds of work, which models and people load into conversations (docs/skills.md).

`skill.py` says what a skill is; it knows no agent, so that front ends read it quickly. `feature.py` takes part in agents.
"""
