"""The remedy for each cause of closed namespaces, from the files in which Linux tells of it."""

import errno
import re
import sys
from pathlib import Path

from support.tables import each

from freeact_sub.kernels.wall.remedies import apparmor_profile, remedy

USERS, CLONE = "proc/sys/user/max_user_namespaces", "proc/sys/kernel/unprivileged_userns_clone"
APPARMOR = "proc/sys/kernel/apparmor_restrict_unprivileged_userns"
PLAIN = {
    "proc/version": "Linux version 6.8.0-40-generic",
    "proc/self/ns/user": "",
    "proc/self/attr/current": "unconfined\n",
    "proc/self/status": "Name:\tpython\nSeccomp:\t0\nSeccomp_filters:\t0\n",
    USERS: "63000\n",
    CLONE: "1\n",
}
DOCKER = {**PLAIN, ".dockerenv": ""}
FILTERED = {"proc/self/status": "Seccomp:\t2\nSeccomp_filters:\t1\n"}
OVERLAY = {"proc/self/mountinfo": "600 500 0:50 / / rw,relatime - overlay overlay rw,lowerdir=/x\n"}
IN_DOCKER = r"docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined \.\.\."


@each(
    ("files", "cause", "advice", "command"),
    [
        ({**PLAIN, APPARMOR: "1\n"}, "AppArmor closes", r"/etc/apparmor.d/freeact-sub; .* /usr/lib/py thon", "parser -r"),
        ({**PLAIN, APPARMOR: "0\n"}, "Operation not permitted", "ask whoever runs", "^$"),
        ({**PLAIN, APPARMOR: "1", CLONE: "0"}, "unprivileged_userns_clone", "^set it", r"_clone = 1' \| sudo tee"),
        ({**PLAIN, USERS: "0"}, "max_user_namespaces", "99-freeact-sub.conf", "namespaces = 16384'.* sysctl --system"),
        ({**DOCKER, USERS: "0"}, "max_user_namespaces", "^on the container's host", "sysctl"),
        ({**DOCKER, **FILTERED}, "seccomp", "start the container", IN_DOCKER),
        ({**PLAIN, **OVERLAY, **FILTERED}, "seccomp", "Kubernetes", IN_DOCKER),
        ({**DOCKER, "proc/self/attr/current": "docker-default (enforce)"}, "`docker-default`", "the container", IN_DOCKER),
        ({**DOCKER, **FILTERED, APPARMOR: "1"}, "seccomp", "of its host.* Then start", "apparmor=freeact-sub"),
        ({**DOCKER, APPARMOR: "1"}, "AppArmor of the container's host", "of its host", "apparmor=freeact-sub"),
        ({**PLAIN, **FILTERED}, "seccomp.* inherited", "RestrictNamespaces=no", "^$"),
        ({**PLAIN, "proc/self/attr/current": "snap.code (enforce)"}, "`snap.code`, .* inherited", "plain terminal", "^$"),
        ({**PLAIN, "proc/version": "Linux version 4.4.0-19041-Microsoft"}, "WSL 1", "Windows", "wsl --set-version"),
        ({**PLAIN, "proc/version": "Linux version 6.6.87.2-microsoft-standard-WSL2"}, "refuses", "ask", "^$"),
        ({"proc/self/status": ""}, "CONFIG_USER_NS", "", "^$"),
        ({}, "refuses", "ask", "^$"),
    ],
)
def test_each_cause_has_its_remedy(tmp_path: Path, files: dict[str, str], cause: str, advice: str, command: str) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = remedy(errno.EPERM, ["/usr/lib/py thon"], tmp_path)
    assert re.search(cause, found.cause), found
    assert re.search(advice, found.advice), found
    assert re.search(command, found.command), found


def test_a_profile_names_the_files_of_the_pythons_and_not_their_links(tmp_path: Path) -> None:
    (tmp_path / "python3.99").touch()
    (tmp_path / "python").symlink_to("python3.99")
    text = apparmor_profile([str(tmp_path / "python")])
    assert f'profile freeact-sub "{tmp_path}/python3.99" flags=(unconfined) {{\n  userns,\n' in text
    assert '"/{a\\{b,c}" flags' in apparmor_profile(["/c", "/a{b"])
    assert str(Path(sys.executable).resolve()) in apparmor_profile([sys.executable])
