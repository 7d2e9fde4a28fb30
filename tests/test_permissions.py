"""Which call runs, which is asked for, which is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from corecoder.events import NOBODY
from corecoder.permissions import Allow, Ask, Permissions, Refuse, Verdict
from corecoder.secretfiles import SecretFiles
from corecoder.sessiondir import project_directory
from corecoder.tool import Workspace
from corecoder.tools.bash import BashTool
from corecoder.tools.edit_file import EditFileTool
from corecoder.tools.glob_tool import GlobTool
from corecoder.tools.grep import GrepTool
from corecoder.tools.read_file import ReadFileTool
from corecoder.tools.write_file import WriteFileTool


def judge(mode: str, tool: object, **arguments: object) -> Verdict:
    return Permissions(mode, Workspace.at(Path.cwd())).judge(tool, arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["ask", "auto", "plan", "yolo"])
def test_a_read_runs_in_every_mode(mode: str) -> None:
    assert judge(mode, ReadFileTool(), file_path="a.txt") == Allow()
    assert judge(mode, BashTool(), command="ls | head") == Allow()


def test_yolo_runs_everything() -> None:
    assert judge("yolo", BashTool(), command="rm -rf build") == Allow()


def test_plan_mode_refuses_whatever_may_change_something() -> None:
    assert isinstance(judge("plan", BashTool(), command="make"), Refuse)
    assert isinstance(judge("plan", WriteFileTool(), file_path="a", content=""), Refuse)


def test_auto_lets_edits_inside_the_project_through_and_refuses_commands() -> None:
    assert judge("auto", WriteFileTool(), file_path="src/new.py", content="") == Allow()
    assert judge("auto", EditFileTool(), file_path="a", old_string="a", new_string="b") == Allow()
    verdict = judge("auto", BashTool(), command="python -m unittest")
    assert isinstance(verdict, Refuse)
    assert "--yes" in verdict.words


@pytest.mark.parametrize(
    "path", ["../out.txt", "/etc/hosts", "~/x", ".git/hooks/pre-commit", ".GIT/config", "a/../../out", "link/x"]
)
def test_auto_refuses_an_edit_whose_real_place_is_outside_the_project_or_in_git(path: str, project: Path) -> None:
    (project / "link").symlink_to(project.parent)
    assert isinstance(judge("auto", WriteFileTool(), file_path=path, content=""), Refuse)


def test_auto_refuses_an_edit_of_our_own_files_where_the_project_holds_them(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    monkeypatch.chdir(home.parent)
    for name in ("trusted.json", "config.toml", ".env", "sessions/x.jsonl"):
        assert isinstance(judge("auto", WriteFileTool(), file_path=f".corecoder/{name}", content=""), Refuse)
    assert isinstance(judge("auto", WriteFileTool(), file_path=".corecoder2/x", content=""), Allow)


def test_auto_refuses_an_edit_of_what_git_runs_whatever_it_is_called(project: Path, home: Path) -> None:
    git = ["git", "-C", str(project), "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(project / "tree")], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["git", "init", "-q", "--bare", str(project / "bare")], check=True)
    subprocess.run(["git", "init", "-q", f"--separate-git-dir={project / 'apart'}", str(project / "sub")], check=True)
    subprocess.run(["git", "init", "-q", str(project / "linked")], check=True)
    (project / "linked/.git").rename(project / "linked/repository")
    (project / "linked/.git").symlink_to("repository")
    (project / "half/refs").mkdir(parents=True)
    (project / "half/objects").mkdir()
    (project / "split/refs").mkdir(parents=True)
    (project / "split/HEAD").write_text("ref: refs/heads/main\n")
    for name in (".husky", "scripts", "shared"):
        (project / name).mkdir()
    (project / "scripts/check").write_text("#!/bin/sh\n")
    (project / ".git/hooks/pre-commit").symlink_to("../../scripts/check")
    subprocess.run(["git", "init", "-q", str(project / "aside")], check=True)
    (project / "aside/.git/hooks").rename(project / "aside/githooks")
    (project / "aside/.git/hooks").symlink_to("../githooks")
    (project / "aside/.git/config").rename(project / "aside/settings")
    (project / "aside/.git/config").symlink_to("../settings")
    with (project / ".git/config").open("a") as file:
        file.write('[Core] hooksPath = ".husky" ; ours\n[include]\n\tpath = ../more\n')
    (project / "more").write_text('[includeIf "gitdir:x"]\npath=shared/settings\n')
    for path in (
        "bare/hooks/update",
        "bare/config",
        "apart/hooks/pre-commit",
        "linked/repository/config",
        "linked/.git/hooks/new",
        "tree/.git",
        "half/HEAD",
        "split/objects/x",
        ".husky/pre-commit",
        ".husky/_/h",
        "scripts/check",
        "more",
        "shared/settings",
        "aside/githooks/pre-commit",
        "aside/settings",
    ):
        assert isinstance(judge("auto", WriteFileTool(), file_path=path, content=""), Refuse), path
    for path in ("tree/a", "sub/a", "linked/a", "half/a", "scripts/other", "shared/a", "HEAD", ".gitignore"):
        assert judge("auto", WriteFileTool(), file_path=path, content="") == Allow(), path


SECRETS = [
    ".env",
    ".env.local",
    "sub/.ENV",
    "link.txt",
    "far/id_rsa",
    "server.pem",
    "~/.ssh/config",
    "~/.aws/credentials",
    "~/.netrc",
    "~/.corecoder/config.toml",
    "~/.corecoder/sessions/other-0123456789/x.jsonl",
    "/proc/self/environ",
    "/proc/1/task/1/environ",
    "/proc/kcore",
    "/dev/mem",
    "/proc/self/task/1/environ",
    "prod.env",
    "deploy/credentials.json",
    "~/.claude.json",
    "~/.codex/auth.json",
    "~/.cargo/credentials.toml",
    "~/.mozilla/firefox/x/logins.json",
    "~/.config/git/credentials",
    "~/.m2/settings.xml",
    "~/.config/chromium/Default/Cookies",
    "~/.local/share/opencode/auth.json",
    "/run/secrets/db",
    "~/.vault-token",
    "/etc/ssh/ssh_host_ed25519_key",
    ".env~",
    ".env-prod",
    ".env_local",
    ".env.local.bak",
    "app.env.bak",
    "server.key.old",
    "id_rsa.bak~",
    "/run/secrets/db_password",
    "/var/run/secrets/kubernetes.io/serviceaccount/token",
]


@pytest.mark.skipif(not os.path.exists("/proc/1"), reason="needs /proc")
def test_a_path_that_may_lead_anywhere_is_secret() -> None:
    assert SecretFiles().named("/proc/1/root/etc/shadow")


@pytest.fixture
def keys(project: Path) -> Path:
    (project / ".env").write_text("KEY=1\n")
    (project / "link.txt").symlink_to(".env")
    (project / "far").symlink_to(project.parent / "home" / ".ssh")
    return project


@pytest.mark.parametrize("mode", ["ask", "plan"])
@pytest.mark.parametrize("path", SECRETS)
def test_a_read_of_a_secret_is_asked_for_once(path: str, mode: str, keys: Path) -> None:
    for tool, arguments in (
        (ReadFileTool(), {"file_path": path}),
        (GrepTool(), {"pattern": "x", "path": path}),
        (GlobTool(), {"pattern": path}),
        (BashTool(), {"command": f"cat {path}"}),
    ):
        verdict = judge(mode, tool, **arguments)
        assert isinstance(verdict, Ask), tool.name
        assert "may hold secrets" in verdict.text
        assert "always" not in verdict.choices
        assert judge("yolo", tool, **arguments) == Allow()


@pytest.mark.parametrize("path", SECRETS)
def test_with_nobody_there_a_read_of_a_secret_is_refused_with_what_may_be_read(path: str, keys: Path) -> None:
    for tool, arguments in ((ReadFileTool(), {"file_path": path}), (BashTool(), {"command": f"cat {path} | head"})):
        verdict = judge("auto", tool, **arguments)
        assert isinstance(verdict, Refuse)
        assert "may hold secrets" in verdict.words
        assert ".env.example" in verdict.words


@pytest.mark.parametrize(
    "path",
    [
        ".env.example",
        "example.env",
        "example.env.bak",
        ".env-example",
        ".env_template",
        "environment.py",
        "keys.py",
        "~/notes.txt",
        "/etc/hosts",
        "id_map.py",
        ".claude/settings.json",
        "/etc/ssh/ssh_host_ed25519_key.pub",
    ],
)
def test_a_read_of_anything_else_is_free(path: str) -> None:
    assert judge("auto", ReadFileTool(), file_path=path) == Allow()
    assert judge("auto", BashTool(), command=f"cat {path}") == Allow()


def test_what_the_model_is_told_to_read_of_its_own_logs_is_free(project: Path, home: Path) -> None:
    own = project_directory(home, project)
    for path in (own / "20250101-000000-abcdef.jsonl", own / "20250101-000000-abcdef" / "1.txt", home / "AGENTS.md"):
        assert judge("auto", ReadFileTool(), file_path=str(path)) == Allow()


def test_a_question_about_a_secret_names_the_real_file_and_says_so_once(keys: Path) -> None:
    for tool, arguments in ((ReadFileTool(), {"file_path": "link.txt"}), (BashTool(), {"command": "cat link.txt"})):
        verdict = judge("ask", tool, **arguments)
        assert isinstance(verdict, Ask)
        assert verdict.text.endswith(" It would show the model link.txt (a link to .env), which may hold secrets.")
        assert "secret" not in verdict.why
        refused = judge("auto", tool, **arguments)
        assert isinstance(refused, Refuse)
        assert "link.txt (a link to .env) may hold secrets" in refused.words
    plain = judge("ask", BashTool(), command="cat src/../.env")
    assert isinstance(plain, Ask)
    assert plain.text.endswith(" It would show the model .env, which may hold secrets.")


def test_an_edit_that_would_show_a_secret_is_a_read_of_it(keys: Path) -> None:
    arguments = {"file_path": ".env", "old_string": "KEY", "new_string": "X"}
    assert isinstance(judge("auto", EditFileTool(), **arguments), Refuse)
    assert judge("auto", WriteFileTool(), file_path=".env", content="") == Allow()


def test_a_command_that_also_changes_something_is_not_asked_for_as_a_read(keys: Path) -> None:
    for command in ("rm x; cat .env", "cat .env > x", "pytest; cat .env", "make $(cat .env)"):
        assert isinstance(judge("plan", BashTool(), command=command), Refuse), command
        assert isinstance(judge("auto", BashTool(), command=command), Refuse), command
        verdict = judge("ask", BashTool(), command=command)
        assert isinstance(verdict, Ask)
        assert verdict.choices == ("no", "yes", "edit")
        assert verdict.text.startswith("Run this command?")
    assert isinstance(judge("plan", BashTool(), command="cat .env", background=True), Refuse)
    arguments = {"file_path": ".env", "old_string": "KEY", "new_string": "X"}
    assert isinstance(judge("plan", EditFileTool(), **arguments), Refuse)
    verdict = judge("ask", EditFileTool(), **arguments)
    assert isinstance(verdict, Ask)
    assert verdict.detail == "--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-KEY=1\n+X=1"
    assert "show the model .env" in verdict.text


def test_a_search_for_files_that_hold_secrets_is_asked_for(keys: Path) -> None:
    assert isinstance(judge("ask", GlobTool(), pattern="**/*.pem"), Ask)
    assert isinstance(judge("ask", GrepTool(), pattern="x", include="*.key"), Ask)
    assert judge("ask", GrepTool(), pattern="x", include="*.py", path="src") == Allow()
    assert judge("ask", GlobTool(), pattern="src/**/*.py") == Allow()


def test_in_a_sandbox_auto_runs_commands_and_still_refuses_what_is_outside_or_secret(keys: Path) -> None:
    permissions = Permissions("auto", Workspace.at(Path.cwd()), confined=True)
    assert permissions.judge(BashTool(), {"command": "make test"}) == Allow()
    assert "confined" in permissions.announcement()
    for tool, arguments in (
        (WriteFileTool(), {"file_path": "../out", "content": ""}),
        (WriteFileTool(), {"file_path": ".git/config", "content": ""}),
        (ReadFileTool(), {"file_path": ".env"}),
        (BashTool(), {"command": "cat .env"}),
    ):
        assert isinstance(permissions.judge(tool, arguments), Refuse)
    assert isinstance(
        Permissions("ask", Workspace.at(Path.cwd()), confined=True).judge(BashTool(), {"command": "make"}), Ask
    )


MAKE = {"command": "make"}
OUT = {"command": "make", "unconfined": True}


def is_confined(verdict: Verdict) -> bool:
    assert isinstance(verdict, Allow)
    return verdict.confined


LOSSES = [
    "rm -rf .git",
    "rm -rf ./.git/",
    "cd src && rm -r ../.git",
    "rm -rf .g*",
    "rm -rf .[a-z]*",
    "rm -rf src .??*",
    "rm -rf .{git,venv}",
    "rm -rf {.git,x}",
    "rm -rf {a,b/{c,../.git}}",
    "rm -rf .git/{hooks,objects}",
    "rm -rf ./.gi{t,x}",
    "rm -rf $(pwd)",
    'rm -rf "$(pwd -P)"/',
    "rm -rf `pwd`",
    'rm -rf "$(git rev-parse --git-dir)"',
    "rm -rf $(git -C . rev-parse --absolute-git-dir)/objects",
    'rm -rf "$(git rev-parse --show-toplevel)/.git"',
    "rm -rf $(git rev-parse --show-toplevel)",
    "rsync -a --delete /tmp/empty/ .",
    "rsync -a --delete /tmp/empty/ ../project/",
    "rsync -a --remove-source-files .git /tmp/x",
    "tar czf /tmp/x.tgz --remove-files .git",
    "tar cf /tmp/x.tar --remove-files .",
    "ls -A | xargs rm -rf",
    "echo .git | xargs -n 1 /bin/rm -rf",
    "mv .git /tmp/x",
    "/bin/rm -rf '.git'",
    "bash -c 'rm -rf .git'",
    "rm -rf \\\n .git",
    "rm -rf .git/objects",
    "rm -f .git/refs/heads/main",
    "rm -rf .git/*",
    "rm -rf $PWD",
    "rm -rf ../project",
    "cd .. && rm -rf project",
    "cd .git && rm -rf objects",
    "d=.git; rm -rf $d",
    "rm -rf $(echo .git)",
    "shopt -s dotglob; rm -rf *",
    "find . -delete",
    "find . -type f -exec rm {} +",
    "find .git -type f -delete",
    "find . -name '*' -delete",
    "python3 -c 'import shutil; shutil.rmtree(\".git\")'",
]
NO_LOSSES = [
    "rm -rf build",
    "rm -rf build/* *.pyc .cache .gitignore",
    "rm -f .git/index.lock",
    "rm -rf .git/rebase-merge",
    "find . -name '*.pyc' -delete",
    "find . -path ./.git -prune -o -name '*.o' -exec rm {} +",
    "git clone https://example.org/x.git && rm -rf x/tests",
    "rsync -a --exclude .git src/ out/",
    "mv a.git b.git",
    "make && cat .git/HEAD",
    "tar czf out.tgz --exclude=.git .",
    "rm -rf {build,dist}/x .cache/{a,b}",
    "rm -rf $(pwd)/build `pwd`/dist",
    'rm -rf "$(git rev-parse --show-toplevel)/build"',
    "rm -f $(git rev-parse --git-dir)/index.lock",
    "rsync -a --delete src/ build/",
    "rsync -a --delete --exclude=.git /tmp/x/ .",
    "tar czf x.tgz --remove-files build",
    "git ls-files -o | xargs rm -f",
    "find . -name '*.orig' | xargs rm",
]


@pytest.mark.parametrize("command", LOSSES)
def test_in_a_sandbox_a_command_that_takes_gits_directory_away_is_asked_for(command: str, project: Path) -> None:
    permissions = Permissions("auto", Workspace.at(project), confined=True)
    verdict = permissions.judge(BashTool(), {"command": command})
    assert isinstance(verdict, Refuse)
    assert "undo does not bring back" in verdict.words
    permissions.attended = True
    asked = permissions.judge(BashTool(), {"command": command})
    assert isinstance(asked, Ask)
    assert "always" not in asked.choices
    assert "undo does not bring back" in asked.why


@pytest.mark.parametrize("command", NO_LOSSES)
def test_in_a_sandbox_other_work_around_git_is_not_asked_for(command: str, project: Path) -> None:
    permissions = Permissions("auto", Workspace.at(project), confined=True)
    assert permissions.judge(BashTool(), {"command": command}) == Allow()


def test_what_nobody_looked_at_runs_confined_and_what_a_person_allowed_as_it_is() -> None:
    bash, workspace = BashTool(), Workspace.at(Path.cwd())
    auto = Permissions("auto", workspace, confined=True)
    assert is_confined(auto.judge(bash, MAKE))
    assert isinstance(auto.judge(bash, OUT), Refuse)
    assert is_confined(auto.judge(bash, {"command": "ls"}))
    assert isinstance(auto.judge(bash, {"command": "ls", "unconfined": True}), Refuse)
    auto.attended = True
    assert isinstance(auto.judge(bash, OUT), Ask)
    assert not is_confined(auto.settle(bash, OUT, "yes"))
    ask = Permissions("ask", workspace, confined=True)
    assert isinstance(ask.judge(bash, {"command": "ls", "unconfined": True}), Ask)
    pytest_run = {"command": "pytest -q"}
    assert not is_confined(ask.settle(bash, pytest_run, "always"))
    assert not is_confined(ask.judge(bash, {"command": "pytest -x"}))
    assert not is_confined(Permissions("yolo", workspace).judge(bash, MAKE))


def test_a_sandbox_that_was_demanded_holds_whatever_was_said_yes_to() -> None:
    bash, workspace = BashTool(), Workspace.at(Path.cwd())
    yolo = Permissions("yolo", workspace, confined=True, all_confined=True)
    assert is_confined(yolo.judge(bash, MAKE))
    assert isinstance(yolo.judge(bash, OUT), Refuse)
    ask = Permissions("ask", workspace, confined=True, all_confined=True)
    assert is_confined(ask.settle(bash, MAKE, "yes"))
    question = ask.judge(bash, OUT)
    assert isinstance(question, Ask)
    assert "outside the sandbox" in question.text
    assert not is_confined(ask.settle(bash, OUT, "yes"))


def test_a_background_job_may_always_be_stopped() -> None:
    for mode in ("ask", "auto", "plan", "yolo"):
        assert judge(mode, BashTool(), stop=1) == Allow()
    assert Permissions("yolo", Workspace.at(Path.cwd())).harmless(BashTool(), {"command": "", "stop": 1})


def test_where_somebody_is_there_auto_asks_for_what_it_would_refuse(keys: Path) -> None:
    permissions = Permissions("auto", Workspace.at(Path.cwd()))
    permissions.attended = True
    assert "is asked for" in permissions.announcement()
    for tool, arguments in (
        (BashTool(), {"command": "make"}),
        (WriteFileTool(), {"file_path": "../out", "content": ""}),
        (ReadFileTool(), {"file_path": ".env"}),
    ):
        assert isinstance(permissions.judge(tool, arguments), Ask)


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "loop/x", "", "x" * 5_000])
def test_a_path_that_no_file_can_have_ends_nothing(path: str, project: Path) -> None:
    (project / "loop").symlink_to("loop")
    for mode in ("ask", "auto", "plan"):
        judge(mode, WriteFileTool(), file_path=path, content="")
        judge(mode, ReadFileTool(), file_path=path)
        judge(mode, GrepTool(), pattern=path, path=path)
        judge(mode, GlobTool(), pattern=path, path=path)
        judge(mode, BashTool(), command=f"cat '{path}'")


def test_a_background_command_is_never_read_only() -> None:
    assert isinstance(judge("auto", BashTool(), command="ls", background=True), Refuse)


def test_ask_shows_the_whole_command() -> None:
    command = "python -m unittest && rm -rf " + "x" * 500
    verdict = judge("ask", BashTool(), command=command)
    assert isinstance(verdict, Ask)
    assert verdict.detail == command
    assert verdict.choices[0] == "no"


ALWAYS = {
    "git commit -m 'a b'": "`git commit …`",
    "pytest": "`pytest …`",
    "pytest -q tests/test_x.py | tail -5": "`pytest …`",
    "cd src && timeout 60 mypy . 2>&1 | head": "`mypy …`",
    "npm test": "`npm test …`",
    "npm run build": "`npm run build …`",
    "make test": "`make test …`",
    "cargo test --all": "`cargo test …`",
    "ruff check . && ruff format . && mypy": "`ruff check …`, `ruff format …` and `mypy …`",
    "git add -A && git commit -am 'a b'": "`git add …` and `git commit …`",
    "go test -run 'TestA|TestB' -count=1 ./...": "`go test …`",
    "pip install -q -r requirements.txt -e '.[dev]'": "`pip install …`",
    "make test -j4 -k": "`make test …`",
    "for f in a b; do eslint $f; done": "`eslint …`",
}


@pytest.mark.parametrize(("command", "stands_for"), ALWAYS.items())
def test_the_question_says_what_always_stands_for(command: str, stands_for: str) -> None:
    verdict = judge("ask", BashTool(), command=command)
    assert isinstance(verdict, Ask)
    assert verdict.text == f"Run this command? (always: {stands_for} in this project, until the session ends)"
    assert verdict.detail == command
    assert verdict.choices == ("no", "yes", "always", "edit")


NEVER_ALWAYS = r"""
make test --eval='$(shell touch /tmp/x)'
make test -C /tmp/evil
make test -C..
make test -f /tmp/evil.mk
make test SHELL=/tmp/x
make -j test
npm test --prefix /tmp/evil
npm test --script-shell=/tmp/x
npm test -- --config=/tmp/x
npm install evil
npm install /tmp/evil
npm install https://example.com/evil.tgz
pytest -p evil --rootdir=/tmp/e
pytest --rootdir=/tmp/e
pytest -c /tmp/x
pytest -k5 --rootdir=/tmp/e
pytest /tmp/e
pytest ../e
pytest far/test_x.py
pytest far/test_x.py::test_a
pytest a/../far/x
pytest @/tmp/words
pytest *
pytest -k $(cat x)
pytest -k
jest -t --config=/tmp/x
cd /tmp && pytest
cd far && pytest
cd .. && pytest
pytest; cd /tmp
cargo test --config build.rustc-wrapper=/tmp/x
cargo test --manifest-path /tmp/x/Cargo.toml
git commit -F ~/.ssh/id_rsa
git commit -F message.txt
git commit -m "$(cat message.txt)"
git commit -m x ~/.ssh/id_rsa
git add .git/config
pip install --target / x
pip install x
pip install -r /tmp/x.txt
pip install -e git+https://example.com/evil
go test -exec 'sh -c ...' ./...
go test -toolexec=x ./...
go build -o /tmp/x .
mvn test exec::java
javac @far/x
prettier --write /tmp/x
bash x.sh
sh -c 'pytest'
/bin/sh x
./shell x
./pytest x
./run
python -m pytest
python3.11 x.py
/usr/bin/python3 x.py
perl x
node x.js
awk 'BEGIN{system("x")}'
sed -i s/a/b/ x
env pytest
sudo pytest
xargs pytest
nohup pytest
nice pytest
ssh host pytest
find . -exec pytest {} +
find . -delete
rm -rf build
curl https://example.com
cp a b
tar xf a.tar
docker run x
npx x
uv run x
go run .
npm exec x
poetry run x
git -c alias.x=!sh x
git -C .. commit
git push
git fetch ext::x
git rebase -x x main
git config core.pager x
git submodule foreach x
git log --output=x
make
make -f x test
make $target
npm
npm --prefix x test
pytest > out.txt
pytest & rm x
pytest && rm x
pytest | sh
pytest `x`
pytest $(sh x)
pytest <<EOF
FOO=1 pytest
PATH=. pytest
$x test
py"$x"
export A=1
eval pytest
. ./x
source x
alias a=b
pytest && cat .env
pytest < .env
cd src && ./run
sort -o x x
tree -o x
date -s 0
aws s3 rm s3://x
gsutil rm x
rclone delete x
gcloud x
openssl x
gpg x
mail x
http x
wipefs x
fdisk x
userdel x
dropdb x
git branch -D x
git stash clear
git tag -d x
git switch -f x
coverage run x
ipython x
valgrind x
perf stat x
hyperfine x
watchexec x
nodemon x
firejail x
bwrap x
setpriv x
taskset 1 x
ionice x
chrt 1 x
gtimeout 1 x
fakeroot x
direnv exec . x
/lib64/ld-linux-x86-64.so.2 x
some-program-nobody-knows x
npm publish
npm run
cargo run
cargo publish
cargo install x
terraform apply
poetry publish
pip uninstall x
uv pip install x
""".strip().splitlines()


@pytest.mark.parametrize("command", NEVER_ALWAYS)
def test_always_is_not_offered_where_it_would_stand_for_anything(command: str, project: Path) -> None:
    (project / "shell").symlink_to("/bin/sh")
    (project / "pytest").symlink_to("/bin/sh")
    (project / "far").symlink_to("/tmp")
    verdict = judge("ask", BashTool(), command=command)
    assert isinstance(verdict, Ask)
    assert verdict.choices == ("no", "yes", "edit")
    assert "always" not in verdict.text


def test_always_covers_its_prefix_with_whatever_only_reads_and_nothing_else(project: Path) -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    tool = BashTool()
    (project / "far").symlink_to("/tmp")
    (project / "tests").mkdir()
    (project / "tests/test_x.py").touch()
    assert permissions.settle(tool, {"command": "pytest -q && git commit -m x"}, "always") == Allow()
    for command in (
        "pytest tests",
        "pytest -xvq -k 'a or b' --tb=short --maxfail 1 tests/test_x.py::test_a[b-1] tests/test_*.py",
        "git commit -a -m 'say $(nothing) of it'",
        "cd tests && pytest -x 2>&1 | tail -3",
        "git commit --amend",
        "ls; git commit -m y; pytest",
        "echo $(pytest)",
        "! pytest",
    ):
        assert permissions.judge(tool, {"command": command}) == Allow(), command
    for command in (
        *NEVER_ALWAYS,
        "pytests",
        "./pytest",
        "/tmp/pytest",
        "git  push",
        "git add .",
        "pytest; make test",
        "pytest\nmake",
        "pytest\nrm x",
        "pytest # x\nrm x",
        "pytest <(rm x)",
        "(pytest) > x",
        "pytest() { rm x; }; pytest",
    ):
        assert isinstance(permissions.judge(tool, {"command": command}), Ask), command
    assert isinstance(permissions.judge(tool, {"command": "pytest", "background": True}), Ask)
    permissions.mode = "plan"
    assert isinstance(permissions.judge(tool, {"command": "pytest"}), Refuse)


def test_always_covers_nothing_in_another_directory(project: Path) -> None:
    workspace, make = Workspace.at(Path.cwd()), {"command": "make test"}
    permissions, tool = Permissions("ask", workspace), BashTool()
    assert permissions.settle(tool, make, "always") == Allow()
    (project / "sub").mkdir()
    workspace.cwd = project / "sub"
    assert permissions.judge(tool, make) == Allow()
    workspace.cwd = project.parent
    verdict = permissions.judge(tool, make)
    assert isinstance(verdict, Ask)
    assert "always" not in verdict.choices
    assert isinstance(permissions.judge(tool, {"command": f"cd {project} && make test"}), Ask)  # where that cd fails


def test_a_program_named_by_its_path_is_that_one_program(project: Path) -> None:
    workspace = Workspace.at(Path.cwd())
    permissions, tool = Permissions("ask", workspace), BashTool()
    assert permissions.settle(tool, {"command": "bin/pytest -q"}, "always") == Allow()
    assert permissions.judge(tool, {"command": "bin/pytest"}) == Allow()
    (project / "sub").mkdir()
    workspace.cwd = project / "sub"
    assert permissions.judge(tool, {"command": "../bin/pytest"}) == Allow()
    assert isinstance(permissions.judge(tool, {"command": "bin/pytest"}), Ask)
    assert isinstance(permissions.judge(tool, {"command": "pytest"}), Ask)


def test_always_for_an_edit_means_every_edit_inside_the_project(keys: Path) -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    tool, arguments = WriteFileTool(), {"file_path": "a", "content": ""}
    verdict = permissions.judge(tool, arguments)
    assert isinstance(verdict, Ask)
    assert "always: every edit inside the project" in verdict.text
    assert verdict.choices == ("no", "yes", "always")
    assert permissions.settle(tool, arguments, "a") == Allow()
    assert permissions.judge(EditFileTool(), {"file_path": "b", "old_string": "x", "new_string": "y"}) == Allow()
    for path in ("../b", ".git/config", "far/x"):
        verdict = permissions.judge(tool, {"file_path": path, "content": ""})
        assert isinstance(verdict, Ask)
        assert verdict.choices == ("no", "yes")
        assert "outside the project, or part of what git runs" in verdict.text
    secret = {"file_path": ".env", "old_string": "KEY", "new_string": "X"}
    assert isinstance(permissions.judge(EditFileTool(), secret), Ask)
    assert isinstance(permissions.judge(BashTool(), {"command": "touch a"}), Ask)


def test_always_where_it_was_not_offered_allows_nothing_more(keys: Path) -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    for tool, arguments in (
        (BashTool(), {"command": "bash x"}),
        (WriteFileTool(), {"file_path": "../b", "content": ""}),
        (ReadFileTool(), {"file_path": ".env"}),
    ):
        assert permissions.settle(tool, arguments, "always") == Allow()
        assert isinstance(permissions.judge(tool, arguments), Ask)
    assert isinstance(permissions.judge(WriteFileTool(), {"file_path": "b", "content": ""}), Ask)


def test_the_question_for_an_edit_is_the_whole_diff(project: Path) -> None:
    lines = [f"line {number}" for number in range(1_000)]
    (project / "a.txt").write_text("\n".join(lines) + "\n")
    long = "y" * 2_000
    verdict = judge("ask", EditFileTool(), file_path="a.txt", old_string="line 500\n", new_string=f"{long}\n")
    assert isinstance(verdict, Ask)
    before, after = " line 497\n line 498\n line 499", " line 501\n line 502\n line 503"
    changed = f"-line 500\n+{long}"
    assert verdict.detail == f"--- a/a.txt\n+++ b/a.txt\n@@ -498,7 +498,7 @@\n{before}\n{changed}\n{after}"
    verdict = judge("ask", WriteFileTool(), file_path="new.txt", content="\n".join(lines))
    assert isinstance(verdict, Ask)
    assert verdict.detail.startswith("--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,1000 @@\n+line 0\n")
    assert verdict.detail.count("\n+line") == 1_000
    assert not (project / "new.txt").exists()
    assert (project / "a.txt").read_text() == "\n".join(lines) + "\n"


def test_an_edit_that_does_not_fit_now_is_asked_for_with_what_is_known(project: Path) -> None:
    verdict = judge("ask", EditFileTool(), file_path="none", old_string="a", new_string="b")
    assert isinstance(verdict, Ask)
    assert "does not exist" in verdict.detail
    assert "new_string: b" in verdict.detail


def test_words_after_a_no_reach_the_model() -> None:
    permissions = Permissions("ask", Workspace.at(Path.cwd()))
    for answer in (
        "no, use pytest instead",
        "no, no, use pytest instead",
        "n use pytest instead",
        "a better way: use pytest instead",
    ):
        verdict = permissions.settle(BashTool(), {"command": "make"}, answer)
        assert isinstance(verdict, Refuse)
        assert verdict.words.endswith("use pytest instead.")
    assert "said no." in permissions.settle(BashTool(), {"command": "make"}, "no").words  # type: ignore[union-attr]


def test_where_nobody_is_there_no_user_is_said_to_have_answered(keys: Path) -> None:
    verdict = Permissions("plan", Workspace.at(Path.cwd())).settle(ReadFileTool(), {"file_path": ".env"}, NOBODY)
    assert isinstance(verdict, Refuse)
    assert "nobody is there" in verdict.words
    assert "the user said" not in verdict.words


def test_a_question_names_the_directory_where_it_is_not_the_projects(project: Path) -> None:
    workspace = Workspace.at(project)
    for cwd, words in ((Path("/tmp"), " in /tmp"), (project / "src", " in src"), (project, "")):
        workspace.cwd = cwd
        verdict = Permissions("ask", workspace).judge(BashTool(), {"command": "touch x"})
        assert isinstance(verdict, Ask)
        assert verdict.text == f"Run this command{words}?"


@pytest.mark.parametrize("name", ["PATH", "GIT_CONFIG_COUNT", "LD_PRELOAD", "PYTHONPATH", "NODE_OPTIONS", "EDITOR"])
def test_a_question_names_what_earlier_commands_changed_and_always_does_not_cover_it(name: str) -> None:
    workspace = Workspace.at(Path.cwd())
    permissions, arguments = Permissions("ask", workspace), {"command": "git commit -m hello"}
    assert permissions.settle(BashTool(), arguments, "always") == Allow()
    assert permissions.judge(BashTool(), arguments) == Allow()
    workspace.env["DEBUG"] = "1"
    assert permissions.judge(BashTool(), arguments) == Allow()
    workspace.env[name] = "/tmp/bin:/usr/bin:/bin"
    verdict = permissions.judge(BashTool(), arguments)
    assert isinstance(verdict, Ask)
    assert verdict.text == f"Run this command with {name} changed by earlier commands?"
    assert verdict.choices == ("no", "yes", "edit")
    workspace.env.pop(name)
    assert permissions.judge(BashTool(), arguments) == Allow()


def test_a_search_of_a_directory_is_free_for_it_leaves_secrets_out_and_one_that_names_a_secret_asks() -> None:
    assert judge("plan", GrepTool(), pattern="x", path="..") == Allow()
    assert isinstance(judge("plan", GrepTool(), pattern="x", path="server.key"), Ask)
    assert isinstance(judge("plan", GrepTool(), pattern="x", include="*.pem"), Ask)


def test_the_announcement_of_ask_says_that_what_is_allowed_runs_unconfined() -> None:
    workspace = Workspace.at(Path.cwd())
    assert "unconfined" in Permissions("ask", workspace, confined=True).announcement()
    assert "unconfined" not in Permissions("ask", workspace, confined=True, all_confined=True).announcement()
    assert "unconfined" not in Permissions("ask", workspace).announcement()


def test_an_unknown_mode_is_an_error() -> None:
    with pytest.raises(ValueError, match="ask, auto, plan, yolo"):
        Permissions("careless", Workspace.at(Path.cwd()))
