"""Agent Skills: folders with instructions, and perhaps Python, for one kind of work, in the open format (agentskills.io).

- `config/skill_folders.py` reads the folders, as they are trusted.
- `skill`: what a skill is (`Skill`), read leniently; what is wrong with it.
- `signatures`: the functions of its Python, without running it.
- `catalogue`: what models read of skills before one is loaded, and of one that is.

`agents/loaded_texts.py` loads them into conversations; in kernels `kernels/guest/skills.py` makes them importable.
"""

from freeact_sub.skills.catalogue import catalogue, loaded_text
from freeact_sub.skills.skill import Skill, SkillModule, Skills, load_skills

__all__ = ["Skill", "SkillModule", "Skills", "catalogue", "load_skills", "loaded_text"]
