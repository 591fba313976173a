"""The environment variables that keep git from obeying the settings of a folder."""

GIT_SETTINGS = (
    ("core.fsmonitor", "false"),
    ("core.hooksPath", "/dev/null"),
    ("core.pager", "cat"),
    ("core.editor", "false"),
    ("sequence.editor", "false"),
    ("core.askPass", "false"),
    ("core.sshCommand", "ssh"),
    ("core.alternateRefsCommand", "true"),
    ("credential.helper", ""),
    ("gpg.program", "false"),
    ("gpg.ssh.program", "false"),
    ("gpg.x509.program", "false"),
    ("interactive.diffFilter", "cat"),
    ("log.showSignature", "false"),
    ("diff.submodule", "short"),
    ("safe.bareRepository", "explicit"),
)
"""Switch off the programs that git starts because of a folder's settings. Filters, textconv and external diff have names
of their own and stay: commands that start them need approval."""


def git_environment() -> dict[str, str]:
    """The variables that make git obey `GIT_SETTINGS` instead of a folder's settings."""
    keys = {f"GIT_CONFIG_KEY_{number}": key for number, (key, _) in enumerate(GIT_SETTINGS)}
    values = {f"GIT_CONFIG_VALUE_{number}": value for number, (_, value) in enumerate(GIT_SETTINGS)}
    return {
        **keys,
        **values,
        "GIT_CONFIG_COUNT": str(len(GIT_SETTINGS)),
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "false",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    }
