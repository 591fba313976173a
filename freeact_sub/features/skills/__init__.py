"""Skills: guides to kinds of work, which models and people load into conversations (docs/skills.md).

`skill.py` reads skills and knows no agent, so that front ends load it quickly. `feature.py` takes part in agents.
"""
