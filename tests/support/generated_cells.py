"""Cells with all kinds of effects, made from numbers: the same number makes the same cell."""

import random

SETUP = """
import os, random, shutil, subprocess, threading
from pathlib import Path
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
random.seed(7); np.random.seed(7)
x, d, a, text = [1, 2], {'k': [1]}, np.arange(1000), 'words'
df = pd.DataFrame({'n': range(5)})
def files(): return sorted(p for p in Path().rglob('*') if p.is_file() and p.parts[0] not in ('.freeact', 'probe.json'))
def folders(): return sorted(p for p in Path().rglob('*') if p.is_dir() and '.freeact' not in p.parts)
def one(of, n): return of[n % len(of)]
"""
"""What runs first; a cell may find none of the names and files that are left, and then ends with an error."""

ACTIONS = {
    "files": [
        "Path('new-{n}.txt').write_text('line {n}\\n' * {k})",
        "Path('data-{n}').write_bytes(bytes(range({k})))",
        "_ = one(files(), {n}).open('a').write('more {n}\\n')",
        "one(files(), {n}).write_text('instead of it\\n')",
        "os.truncate(one(files(), {n}), {k})",
        "os.makedirs('folder-{n}/deep', exist_ok=True); Path('folder-{n}/deep/at {k}').write_text('é ☃ {n}')",
        "os.mkdir('empty-{n}')",
        "os.symlink('{n}.txt', 'link-{n}')",
        "df.to_csv('table-{k}.csv')",
        "np.save('array-{k}.npy', a)",
        "one(files(), {n}).touch()",
        "shutil.copy2(one(files(), {n}), 'copy-{n}')",
        "h = open('log', 'a'); h.write('{n}\\n'); h.flush()",
        "h.write('then {n}\\n'); h.flush()",
        "h.close(); del h",
        "Path('.hidden-{n}').write_text('h')",
    ],
    "variables": [
        "x.append({n})",
        "d['k'].append({n}); d[{n}] = 'v'",
        "v{k} = {n} * 1.5",
        "a[{k}] = {n}",
        "df.loc[{k} % 5, 'n'] = {n}",
        "del v{k}",
        "text += ' {n}'",
        "x = d['shared'] = [{n}]",
        "def f{k}(): return {n}",
        "class C{k}: n = {n}",
        "c{k} = type('T', (), {{'n': {n}}})()",
        "d.clear(); d['k'] = [{n}]",
        "s = {{1, 2, {n}}}; b = bytearray(b'{n}')",
        "df['col{k}'] = np.random.random(len(df))",
        "drawn = (random.random(), np.random.random())",
    ],
    "threads": [
        "t = threading.Thread(target=lambda: x.append('t{n}')); t.start(); t.join()",
        "t = threading.Thread(target=lambda: Path('of-thread-{n}').write_text('t')); t.start(); t.join(); del t",
        "import asyncio; await asyncio.gather(*(asyncio.to_thread(int) for _ in range({k}))); w = {n}",
    ],
    "subprocesses": [
        "out = subprocess.run(['ls'], capture_output=True, text=True).stdout",
        "!ls",
        "lines = !cat rows.csv",
        "print(subprocess.run(['wc', '-l', 'rows.csv'], capture_output=True, text=True).stdout)",
    ],
    "plots": [
        "plt.figure(figsize=(1, 1)); plt.plot(a[:{k} + 2]); plt.savefig('plot-{n}.png'); plt.close('all')",
        "plt.figure(figsize=(1, 1)); plt.plot([1, {k}]); plt.show()",
        "df",
    ],
    "errors": ["1 / 0", "x.append(1); raise ValueError('it is {n}')", "no_such_name", "open('nothing here')", "y = (", "assert {k} > 100"],
    "deletions": [
        "one(files(), {n}).unlink()",
        "shutil.rmtree(one(folders(), {n}))",
        "p = one(folders(), {n}); shutil.rmtree(p); p.mkdir(); (p / 'again').write_text('{n}')",
        "p = one(files(), {n}); p.unlink(); p.write_text('again {n}')",
    ],
    "renames": [
        "one(files(), {n}).rename('renamed-{n}')",
        "os.replace(one(files(), {n}), one(files(), {k}))",
        "one(folders(), {n}).rename('moved-{n}')",
        "shutil.move(one(folders(), {n}), 'shifted-{n}')",
    ],
    "permissions": [
        "one(files(), {n}).chmod(0o600)",
        "one(files(), {n}).chmod(0o755)",
        "one(folders(), {n}).chmod(0o700)",
        "os.utime(one(files(), {n}), (0, {n}))",
    ],
}  # fmt: skip
STOPS = ["!touch asked-{n}", "open('/tmp/asked-{n}', 'w')", "subprocess.Popen(['ls', '-R', '/'], stdout=subprocess.PIPE)"]
"""What a person would be asked about, or what cannot be copied."""


def generated_cell(number: int) -> tuple[str, bool]:
    """A cell, and whether its trial must stop."""
    drawn = random.Random(number)
    kinds = [*ACTIONS][number % len(ACTIONS) :][:1] + drawn.choices([*ACTIONS], k=drawn.randrange(3))
    drawn.shuffle(kinds)
    kinds.sort(key=lambda kind: kind == "errors")  # what follows an error does not run
    lines = [drawn.choice(ACTIONS[kind]) for kind in kinds]
    stops = number % 25 == 24
    if stops:
        lines = [line for line in lines if line not in ACTIONS["errors"]] + [drawn.choice(STOPS)]
    fill = {"n": drawn.randrange(1, 40), "k": drawn.randrange(1, 9)}
    return "\n".join(line.format(**fill) for line in lines), stops
