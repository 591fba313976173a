"""Programs that only read: unasked behind their wall, and asked about where there is none."""

from pathlib import Path

import pytest
from support.tables import each, lines

from freeact_sub.approvals import Policy, decide, make_rules
from freeact_sub.approvals.policy import Rules, shipped_rules
from freeact_sub.calls import ShellCommand

WORK = Path("/work space")


def ruling(command, mode="ask", *, wall=True, workspace=WORK, **lists):
    rules = Rules(levels=(make_rules(lists), *shipped_rules().levels))
    return decide(ShellCommand(command=command, wall=wall), Policy(workspace=workspace, mode=mode, rules=rules))


def verdict(command, mode="ask", **options):
    return ruling(command, mode, **options).verdict


READS = lines("commands/that_only_read.txt")


@each("command", READS)
@pytest.mark.slow
def test_what_only_reads_is_unasked_behind_the_wall_and_asked_about_without_it(command, tmp_path):
    (tmp_path / ".git").mkdir()  # an empty one: git shows nothing
    command = command.replace("( ", "\\( ").replace(" )", " \\)").replace("$\\( date \\)", "$(date)")
    for mode in ("plan", "ask"):
        found = ruling(command, mode, workspace=tmp_path)
        assert (found.verdict, found.walled) == ("allow", True), found
        assert verdict(command, mode, wall=False, workspace=tmp_path) == "ask"
    for mode in ("auto", "full"):
        found = ruling(command, mode, wall=False, workspace=tmp_path)
        assert (found.verdict, found.walled) == ("allow", None)


@each("command", lines("commands/that_the_wall_would_stop.txt"))
def test_what_the_wall_would_stop_is_asked_about(command):
    assert {verdict(command, mode) for mode in ("plan", "ask")} == {"ask"}


def test_a_line_of_which_a_part_needs_more_than_the_wall_is_unasked_only_where_nothing_can_be_misread():
    own = {"allow": ["shell:make *", "connect:h:80"]}
    for line in (
        "make x",
        "make x 2>&1 | tail -5",
        "cd a && make 'b c' && echo \"done\" >> log.txt",
        "echo x > a.txt",
        "cat a b > c",
    ):
        found = ruling(line, **own)
        assert (found.verdict, found.walled) == ("allow", False), line
    for line in (
        *("make x; sort a", "echo $x > a", "echo `date` > a", "make x; echo $(ls)", "make x; echo \\a", "make x; cat <(ls)", "make x\n: # it's"),
        *("make x; x=1; ls", "make x; cat < /dev/tcp/h/80", "echo x > ~/a", "{ make x; ls; }", "make x; echo {a,b}"),
    ):  # fmt: skip
        assert verdict(line, **own) == "ask", line
    assert verdict("make x | tail -5", wall=False, **own) == "ask"
    assert (verdict("make x", wall=False, **own), verdict("ls", wall=False, allow=["shell:ls **"])) == ("allow", "allow")


ALWAYS = {
    "tar xf x.tar": "tar xf x.tar",
    "vim x y": "vim x y",
    "git push origin": "git push origin",
    "make test": "make test",
    "ssh h uptime": "ssh h uptime",
    "docker run x": "docker run x",
    "sort -o x y": "sort -o x y",
    "cat a.txt": "cat *",
    "grep -n x a": "grep *",
    "find . -name x": "find . -name x",
    "git status": "git status",
    "tar xf $x": None,
    "vim *": None,
    "cat $x": None,
    "./cat a": "./cat a",
}


@each(("command", "offered"), ALWAYS.items())
def test_always_offers_open_arguments_only_where_no_option_starts_a_program(command, offered, tmp_path):
    (tmp_path / ".git").mkdir()
    found = ruling(command, wall=False, workspace=tmp_path)
    wanted = () if offered is None else (f"shell:{offered}",)
    assert (found.verdict, tuple(text for text in found.suggests if text.startswith("shell:"))) == ("ask", wanted)
    if offered is not None and "*" not in offered:
        other = f"{command} --option=x"
        assert verdict(other, wall=False, workspace=tmp_path, allow=[f"shell:{offered}"]) == "ask"


SECRETS = lines("names_of_secrets.txt")


@each("name", SECRETS)
@each(
    "form", ["cat {}", "cat < {}", "file -f{}", "strings @{}", "hexdump -f{}", "grep x --file={}", "grep -f{} x", "grep -nf{} x", "head -- {}", "git show HEAD:{}"]
)  # fmt: skip
@pytest.mark.slow
def test_a_secret_file_is_asked_for_however_it_is_named(form, name):
    assert verdict(form.format(name)) == "ask"


def test_a_secret_in_a_folder_is_found_where_all_of_the_folder_is_read(tmp_path):
    for folder in ("clean", "sub/inner"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "clean/a").touch()
    (tmp_path / "sub/inner/.env").touch()
    (tmp_path / "link").symlink_to("sub")
    policy = Policy(workspace=tmp_path)
    for command in (
        "grep -r x .",
        "grep -rn x sub",
        "grep --recursive x",
        "grep -R x link",
        "rg x sub/inner/.env",
        "diff clean sub",
        "grep -r x *",
    ):
        ruling = decide(ShellCommand(command=command, wall=True), policy)
        assert (ruling.verdict, ruling.suggests) == ("ask", ("file:sub/inner/.env",)), command
        assert "sub/inner/.env" in ruling.reason
    for command in (
        "grep -r x clean",
        "rg x clean clean",
        "rg x",
        "rg x sub",
        "grep x *",
        "ls -R sub",
        "find sub",
        "diff clean clean",
    ):
        assert decide(ShellCommand(command=command, wall=True), policy).verdict == "allow", command


def test_a_wildcard_is_what_it_finds(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/x.csv").touch()
    policy = Policy(
        workspace=tmp_path, rules=Rules(levels=(make_rules({"deny": ["file:data/x.csv"]}), *shipped_rules().levels))
    )
    assert decide(ShellCommand(command="cat data/*", wall=True), policy).verdict == "deny"
    assert decide(ShellCommand(command="cat */x.*", wall=True), policy).verdict == "deny"
    assert decide(ShellCommand(command="cat *.py", wall=True), policy).verdict == "allow"
    (tmp_path / "server.pem").touch()
    assert decide(ShellCommand(command="cat *", wall=True), policy).verdict == "ask"
    assert decide(ShellCommand(command="ls *", wall=True), policy).verdict == "allow"
