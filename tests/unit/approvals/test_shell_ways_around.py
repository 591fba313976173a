"""Ways around rules: other spellings of what is forbidden, or of a secret's name."""

import pytest
from support.tables import each, lines

from freeact_sub.approvals import Policy, access, decide, make_rules
from freeact_sub.approvals.policy import Rules, shipped_rules
from freeact_sub.calls import ShellCommand


def verdict(command, workspace, mode="ask", **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=True), Policy(workspace=workspace, mode=mode, rules=rules)).verdict


OPTIONS = " ".join(f"-c a.b{number}=c" for number in range(60))


@each("command", lines("commands/that_start_git_push.txt"))
@each("mode", ["auto", "full"])
@pytest.mark.slow
def test_a_forbidden_command_is_not_started_by_another_one_unasked(command, mode, tmp_path):
    assert verdict(command, tmp_path, mode, deny=["shell:git push *"]) != "allow"


@each(
    "command",
    [
        *("grep -rn shutdown src", "grep 'git push' a", "echo reboot", "echo git push", "rg halt .", "find . -name reboot", "cat halt"),
        *("timeout 5 grep reboot a", "ls git push", "bash -c 'grep reboot a'"),
    ],
)  # fmt: skip
def test_to_read_about_a_forbidden_command_is_not_asked_for(command, tmp_path):
    assert verdict(command, tmp_path, deny=["shell:git push *"]) == "allow"


@each(
    "command",
    [
        *("case x in x) git push;; esac", "f() { git push; }; f", "x=(a b); git push", "[[ -f x ]] && git push", "git push &> log", "cat <(git push)"),
        *("echo $((x)); git push", "bash -c 'f() { git push; }; f'", "case x in x) rm -rf /;; esac", "f() { env A=1 git push; }; f"),
        *("case x in x) echo > .freeact/permissions.toml;; esac", "f() { cat .env; }; f", "cat <<< $(git push)", "ls >& .freeact/permissions.toml"),
    ],
)  # fmt: skip
def test_what_is_denied_stays_denied_in_a_command_that_is_not_understood(command, tmp_path):
    lists = {"allow": ["shell"], "deny": ["shell:git push *", "file:.env"]}
    assert {verdict(command, tmp_path, mode, **lists) for mode in ("plan", "ask", "auto", "full")} == {"deny"}


@each("program", ["echo", "true", ":", "printf"])
def test_a_program_that_comes_from_the_input_is_not_the_one_whose_name_stands_there(program, tmp_path):
    assert verdict(f"cat x | xargs -I {program} {program}", tmp_path) == "ask"
    assert verdict(f"cat x | xargs --replace={program} {program} y", tmp_path) == "ask"


@each("name", lines("wildcards_of_secrets.txt"))
@each("form", ["cat {}", "cat < {}", "grep x -- {}", "cd sub/..; head {}"])
def test_a_secret_behind_a_wildcard_is_asked_for(name, form, tmp_path):
    (tmp_path / "sub").mkdir()
    for file in ("server.key", "sub/inner.jks", ".env"):
        (tmp_path / file).touch()
    (tmp_path / "link").symlink_to(".env")
    assert verdict(form.format(name), tmp_path) == "ask"


@each("name", lines("other_names_of_secrets.txt"))
def test_other_names_of_secrets_are_asked_for(name, tmp_path):
    (tmp_path / ".env").touch()
    (tmp_path / "link").symlink_to(".env")
    assert verdict(f"cat {name}", tmp_path) == "ask"
    assert verdict(f"mytool {name}", tmp_path, allow=["shell:mytool *"]) == "ask"


@each("path", ["$x", '"$x"', "/dev/$x/127.0.0.1/80", "${d}tcp/h/80", "/dev/{tcp,x}/h/80"])
def test_what_may_be_a_connection_is_asked_for_whatever_files_are_allowed(path, tmp_path):
    assert verdict(f"cat < {path}", tmp_path, allow=["file:**"]) == "ask"


@each("host", ["0", "0.0.0.0", "127.1", "2130706433", "::ffff:127.0.0.1", "::"])
def test_every_address_of_this_machine_is_a_way_to_it(host, tmp_path):
    assert verdict(f"cat < /dev/tcp/{host}/80", tmp_path, "full", deny=["connect:127.0.0.1", "connect:[[]::1]"]) == "deny"


def test_a_folder_with_too_many_files_is_asked_for_where_one_may_be_denied(tmp_path, monkeypatch):
    monkeypatch.setattr(access, "MAX_FILES", 5)
    for number in range(10):
        (tmp_path / f"{number}").touch()
    assert verdict("grep -r x .", tmp_path, "full", deny=["file:data/**"]) == "ask"
    assert verdict("grep -r x .", tmp_path, "full") == "allow"
    assert verdict("grep -r x .", tmp_path) == "ask"


def test_a_bundle_of_certificates_is_no_secret_and_a_key_in_it_is_one(tmp_path):
    bundle = tmp_path / "cacert.pem"
    for content, expected in (
        ("CERTIFICATE", "allow"),
        ("PRIVATE KEY", "ask"),
        ("CERTIFICATE-----\n-----BEGIN PRIVATE KEY", "ask"),
    ):
        bundle.write_text(f"-----BEGIN {content}-----\n")
        assert verdict("grep -r x .", tmp_path) == verdict("cat cacert.pem", tmp_path) == expected
    bundle.write_text("-----BEGIN CERTIFICATE-----\n")
    assert verdict("cat cacert.pem", tmp_path, ask=["file:*.pem"]) == "ask", "a rule of one's own"


def test_hidden_files_are_not_read_by_rg_unless_they_are_named(tmp_path):
    (tmp_path / ".env").touch()
    assert verdict("rg x", tmp_path) == "allow"
    assert {verdict(command, tmp_path) for command in ("rg x .env", "rg --hidden x", "rg -uu x", "grep -r x .")} == {"ask"}


@each("command", ["sort a | uniq -c | sort -rn", "tac a", "test -f a && cat a", "command -v python", "type ls", "python -V"])
def test_everyday_commands_are_not_asked_for(command, tmp_path):
    assert verdict(command, tmp_path) == "allow"


@each(
    "command",
    [
        *("uniq a b", "uniq -c a b", "uniq -- a b", "command ./x", "test -v 'a[$(id)]'", "hostname x", "exec -a sh busybox ls"),
        *("zsh -c 'ls =x'", "zsh -c \"test 'a[\\$(id)]' -eq 1\"", "fish -c 'ls \"(id)\"'", "ksh -c 'ls \"x\"'"),
    ],
)  # fmt: skip
def test_relatives_of_everyday_commands_that_do_more_are_asked_for(command, tmp_path):
    assert verdict(command, tmp_path) == "ask"


@each("command", lines("commands/with_words_after_a_here_document.txt"))
def test_words_behind_a_here_document_and_redirections_in_a_test_count(command, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    places = {"secret": folder / ".env", "outside": tmp_path / "p"}
    places["secret"].touch()
    assert verdict(command.format(**places), folder, allow=["shell:gawk *"]) == "ask"


def test_a_wildcard_in_a_path_from_the_root_or_home_finds_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("home/keys", "work", "plain"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/keys/id_rsa").touch()
    (tmp_path / "plain/file").touch()
    for command in (f"cat {tmp_path}/home/keys/*", f"cat {tmp_path}/h*/keys/id_*", "cat ~/k*/*", "cat ~/keys/i?_rsa"):
        assert verdict(command, tmp_path / "work") == "ask", command
        assert verdict(command, tmp_path / "work", "full", deny=["file:**/id_rsa"]) == "deny", command
    assert verdict(f"cat {tmp_path}/plain/*", tmp_path / "work") == "allow"


def test_a_link_that_leads_to_itself_is_no_folder(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    assert {verdict(command, tmp_path) for command in ("grep -r x .", "grep x *", "rg x", "diff . .")} == {"allow"}
