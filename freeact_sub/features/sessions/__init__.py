"""Sessions of agents: records of their steps (`journal`), and how they continue (`resume`).

Write-ahead: before a call runs its begin is committed, and before its result is used its result. So after a `kill -9` each
call of the history is done, begun, or not begun; `resume` puts what the model reads of that into the history. A child or an
ask that repeats a completed one gets its answer from the session (`feature`).
"""
