"""Ways around rules: other spellings of what is forbidden, or of a secret's name."""

import pytest

from freeact_sub.approvals import Policy, decide, folder_reads, make_rules
from freeact_sub.approvals.rules.rule import Rules, shipped_rules
from freeact_sub.calls import ShellCommand


def verdict(command, workspace, mode="ask", **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=True), Policy(workspace=workspace, mode=mode, rules=rules)).verdict


OPTIONS = " ".join(f"-c a.b{number}=c" for number in range(60))


@pytest.mark.parametrize(
    "command",
    [
        *("catchsegv /usr/bin/git push", "fakeroot git -C . push", "fakeroot /usr/bin/git --no-pager -C . push", f"git {OPTIONS} push"),
        *(f"firejail {'x ' * 60}git push", f"firejail {'x ' * 60}nice git push", "git-push", "/usr/lib/git-core/git-push origin"),
        *("fakeroot git-push", "tmux new 'git push'", "tmux new 'cd x && git push'", "ssh h 'nice git push'", "make SHELL='git push'"),
        *("awk 'BEGIN{system(\"git push\")}'", "perl -e 'exec \"git\", \"push\"'", "python -c \"import os; os.system('git push')\""),
        *("python3 -c \"run(['git', 'push'])\"", "vim -c ':!git push'", "tar cf x --checkpoint-action=exec='git push' y"),
        *("git -c alias.p=push p", "git -c 'alias.p=!git push' p", "git -calias.p=push p", "git config alias.p push", "git --config-env=alias.p=X p"),
        *("source /dev/stdin <<< 'git push'", ". /dev/fd/0 <<< 'git push'", "bash /dev/stdin <<< 'git push'", "sh /proc/self/fd/0 < x"),
        *("PAGER='git push' man x", "export PROMPT_COMMAND='git push'", "PROMPT_COMMAND=(x 'git push')", "GIT_SSH_COMMAND='cd x; git push' git fetch"),
        *("LESSOPEN='|git push' less x", "LESS='+!git push' less x", "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p"),
        *("GIT_CONFIG_PARAMETERS=\"'alias.p=push'\" git p", "perl -e 'exec qw(git push)'", "ruby -e '`git push`'", "socat exec:'git push' -"),
        *("git fetch 'ext::git push'", "sed '1e git push' x", "expect -c 'spawn git push'", "make x='$(shell git push)'", "git grep -O'git push' x"),
        *("env PAGER='git push' man x", "nice env LESS=-r PAGER='git push' man x", "for PAGER in x 'git push'; do man x; done", "git\\\n push", "GIT push"),
        *("TAR_OPTIONS='--checkpoint-action=exec=git\\ push' tar cf x y", "tar cf x --to-command=git\\ push y", "socat EXEC:'git push',pty -", "/usr/bin/GIT push"),
        *("env 'BASH_FUNC_ls%%=() { git push; }' bash -c ls", "env X=1 BROWSER='sh -c \"git push\"' xdg-open x"),
        *("crontab - <<< '* * * * * git push'", "batch <<< 'git push'", "echo 'git push' | su", "script <<< 'git push'", "sg x 'git push'"),
        *("sed 's/.*/git push/e' a", "sed -e 's/.*/git push/e' a", "sed 's,.*,git push,e' a", "sed 's#.*#git push#e' a", "sed -e's_.*_git push_e' a"),
        *("sed 'sx.*xgit pushxe' a", "sed --expression='s/x/git push/e' a", "sed '$e git push' a", "sed '1{e git push\n}' a", "zip -T x a -TT'git push'"),
        *("sed 's/x/git push origin main/e' a", "perl -pe 's/x/`git push`/e' a", "sed 's@x@/usr/bin/git push@e' a", "python -mfabric git push"),
        *("ksh -c \"test 'a[\\$(git push)]' -eq 1\"", "zsh -c \"test 'a[\\$(git push)]' -eq 1\"", "python -c \"import os; os.system('git\\tpush')\"", "exec -a git x push"),
        *("echo push | xargs -I% git %", "echo git | xargs -I % % push", "echo git | xargs --replace=a fakerooa a push"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["auto", "full"])
def test_a_forbidden_command_is_not_started_by_another_one_unasked(command, mode, tmp_path):
    assert verdict(command, tmp_path, mode, deny=["shell:git push *"]) != "allow"


@pytest.mark.parametrize(
    "command",
    [
        *("grep -rn shutdown src", "grep 'git push' a", "echo reboot", "echo git push", "rg halt .", "find . -name reboot", "cat halt"),
        *("timeout 5 grep reboot a", "ls git push", "bash -c 'grep reboot a'"),
    ],
)  # fmt: skip
def test_to_read_about_a_forbidden_command_is_not_asked_for(command, tmp_path):
    assert verdict(command, tmp_path, deny=["shell:git push *"]) == "allow"


@pytest.mark.parametrize("program", ["echo", "true", ":", "printf"])
def test_a_program_that_comes_from_the_input_is_not_the_one_whose_name_stands_there(program, tmp_path):
    assert verdict(f"cat x | xargs -I {program} {program}", tmp_path) == "ask"
    assert verdict(f"cat x | xargs --replace={program} {program} y", tmp_path) == "ask"


@pytest.mark.parametrize(
    "name",
    [
        *("serve[r].key", "server.ke[y]", "server.ke[a-z]", "server.ke[[:alpha:]]", "server.ke[!a]", "server.ke[^a]", 'server.ke["y"]', "*[y]"),
        *("[s]erver.key", "sub/[i]nner.jk[s]", "*/*[s]", "[l]ink", "*nk", "./*[n]k", "lin[k]", "sub/../[l]ink"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["cat {}", "cat < {}", "grep x -- {}", "cd sub/..; head {}"])
def test_a_secret_behind_a_wildcard_is_asked_for(name, form, tmp_path):
    (tmp_path / "sub").mkdir()
    for file in ("server.key", "sub/inner.jks", ".env"):
        (tmp_path / file).touch()
    (tmp_path / "link").symlink_to(".env")
    assert verdict(form.format(name), tmp_path) == "ask"


@pytest.mark.parametrize(
    "name",
    [
        *(".ENV", "sub/.Env", "ID_RSA", "server.KEY", "x.Pem", "/ETC/shadow", "~/.SSH/config", "/proc/self/cwd/link", "/proc/thread-self/cwd/link"),
        *("/proc/self/task/1/cwd/link", "x.env.bak", "store.jks~", "secrets.toml", ".streamlit/secrets.yaml", "credentials.json", "client_secret_1.json"),
        *("my-service-account.json", "/run/secrets/x", "/etc/sudoers.d/x", "/dev/sda1", "/dev/mem", "/proc/kcore", "~/.cargo/credentials.toml"),
        *("a,.env,b", "a:server.key:b", "'open(\".env\")'", "/dev/mapper/root"),
    ],
)  # fmt: skip
def test_other_names_of_secrets_are_asked_for(name, tmp_path):
    (tmp_path / ".env").touch()
    (tmp_path / "link").symlink_to(".env")
    assert verdict(f"cat {name}", tmp_path) == "ask"
    assert verdict(f"mytool {name}", tmp_path, allow=["shell:mytool *"]) == "ask"


@pytest.mark.parametrize("path", ["$x", '"$x"', "/dev/$x/127.0.0.1/80", "${d}tcp/h/80", "/dev/{tcp,x}/h/80"])
def test_what_may_be_a_connection_is_asked_for_whatever_files_are_allowed(path, tmp_path):
    assert verdict(f"cat < {path}", tmp_path, allow=["file:**"]) == "ask"


@pytest.mark.parametrize("host", ["0", "0.0.0.0", "127.1", "2130706433", "::ffff:127.0.0.1", "::"])
def test_every_address_of_this_machine_is_a_way_to_it(host, tmp_path):
    assert verdict(f"cat < /dev/tcp/{host}/80", tmp_path, "full", deny=["connect:127.0.0.1", "connect:[[]::1]"]) == "deny"


def test_a_folder_with_too_many_files_is_asked_for_where_one_may_be_denied(tmp_path, monkeypatch):
    monkeypatch.setattr(folder_reads, "MAX_FILES", 5)
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


@pytest.mark.parametrize(
    "command", ["sort a | uniq -c | sort -rn", "tac a", "test -f a && cat a", "command -v python", "type ls", "python -V"]
)
def test_everyday_commands_are_not_asked_for(command, tmp_path):
    assert verdict(command, tmp_path) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        *("uniq a b", "uniq -c a b", "uniq -- a b", "command ./x", "test -v 'a[$(id)]'", "hostname x", "exec -a sh busybox ls"),
        *("zsh -c 'ls =x'", "zsh -c \"test 'a[\\$(id)]' -eq 1\"", "fish -c 'ls \"(id)\"'", "ksh -c 'ls \"x\"'"),
    ],
)  # fmt: skip
def test_relatives_of_everyday_commands_that_do_more_are_asked_for(command, tmp_path):
    assert verdict(command, tmp_path) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        *("cat <<X {secret}\na\nX", "env <<X touch p\na\nX", "find <<X . -delete\na\nX", "sort <<'X' -o {outside}\na\nX", "cat <<X '{secret}'\na\nX"),
        *('cat <<X "$x"\na\nX', "ls | env <<X touch p\na\nX", "git <<X push\na\nX", "[ a > {outside} ]", "[ a >> {outside} ]", "[ -n a >{outside} ]"),
        *("! [ a > {outside} ]", "if [ ! a > {outside} ]; then ls; fi", "[ a -o b > {outside} ]", "[ a = b > {outside} ]", "[ a < {secret} ]"),
        *("awk '{{print}}' /inet/tcp/0/127.0.0.1/80", "gawk '{{print}}' /inet6/udp/0/h/80", "awk '{{print $1}}' '/inet4/tcp//h/http'"),
    ],
)  # fmt: skip
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
