"""Agents and their session: what they write to it, and how they continue it (`journal`).

Write-ahead: before a call runs its begin is committed, and before its result is used its result. So after a `kill -9` each
call of the history is done, begun, or not begun; `load` puts into the history what the model reads of it. A child or an
ask that repeats a completed one gets its answer from the session (`feature`).
"""
