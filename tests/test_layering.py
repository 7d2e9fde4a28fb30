"""The architecture as a test: it reads the imports of every module. A new module has to be put into the table."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import corecoder

PACKAGE = Path(corecoder.__file__).parent

LAYERS: dict[int, str] = {
    5: "__main__ cli repl render commands print_mode demo terminal firstrun "
    "markdown inline layout highlight diffview folds speech running words "
    "editor keys liveview above history asked ui status completion",
    4: "app",
    3: "agent turn dispatch driver",
    2: "context ledger outcome memory meter tiers intake summary tools prompt plan "
    "permissions prefixes judgement readonly shellparse secretfiles tracked gitloss "
    "checkpoints checkpointstore snapshot rewind "
    "sessiondiff transcript census mentions fileindex",
    1: "llm stream reader retries providers refusals dialects shapes wire models scripted errorbody sse toolcalls "
    "session sessiondir journal tool config "
    "sources forms trust shell child processes capture sandbox denials homeplaces landlock gitdir gitwatch folder",
    0: "values events messages jobs tokens text errors",
}
LAYER = {name: layer for layer, names in LAYERS.items() for name in names.split()}
LAYER["__init__"] = 6  # the public names, each loaded when it is asked for

FRONT_END = 5
ONLY_FRONT_ENDS = {"rich", "markdown_it", "pygments", "prompt_toolkit", "argparse", "readline", "curses"}
WORTH_A_LATE_IMPORT = {
    "openai",
    "httpx2",
    "rich",
    "markdown_it",
    "pygments",
    "prompt_toolkit",
    "tiktoken",
    "genai_prices",
    "mcp",
    "dotenv",
}
WORTH_A_LATE_IMPORT |= {"ctypes", "tomllib", "tomli", "difflib", "tree_sitter", "tree_sitter_bash"}
OURS_WORTH_A_LATE_IMPORT = {
    "judgement",
    "gitloss",
    "prefixes",
    "readonly",
    "shellparse",
    "rewind",
    "checkpoints",
    "sessiondiff",
}  # tables, and few sessions
DOORS = {"cli", "__init__"}  # what starts here must not load the rest: any import may be late
NOT_EVERYWHERE = {"fcntl", "termios", "tty", "pty", "pwd", "grp", "resource", "msvcrt", "winreg", "_winapi"}
STARTS_THREADS = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "start_new_thread"}
CONCURRENT = {"asyncio", "concurrent", "multiprocessing", "_thread"}
LOOPS = {("editor", "asyncio"), ("history", "asyncio")}  # the event loop of prompt_toolkit
NOT_PRIVATE = {"_exit", "_replace", "_asdict", "_fields", "_make"}  # documented names of the standard library
CHANGES = {"append", "add", "update", "pop", "setdefault", "clear", "extend", "remove", "insert", "popitem", "discard"}


class Module:
    """One file of the package: its name within the package, its text, its tree."""

    def __init__(self, path: Path) -> None:
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        self.is_package = parts[-1] == "__init__" and len(parts) > 1
        self.name = ".".join(parts[:-1] if self.is_package else parts)
        self.top = parts[0]
        self.lines = path.read_text(encoding="utf-8").splitlines()
        self.tree = ast.parse("\n".join(self.lines), str(path))
        self.nodes = list(ast.walk(self.tree))

    def __repr__(self) -> str:
        return self.name

    def imports(self) -> Iterator[tuple[ast.Import | ast.ImportFrom, str, bool]]:
        """(statement, what is imported, whether it is ours); ours is named within the package."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    ours = alias.name.split(".")[0] == "corecoder"
                    yield node, alias.name.partition(".")[2] if ours else alias.name, ours
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                if base is None:
                    yield node, node.module or "", False
                    continue
                for alias in node.names:
                    full = f"{base}.{alias.name}".lstrip(".")
                    yield node, full if full in NAMES else base or "__init__", True

    def _absolute(self, node: ast.ImportFrom) -> str | None:
        """The module of a `from` import within the package, "" for the package itself; None if it is not ours."""
        if not node.level:
            root, _, rest = (node.module or "").partition(".")
            return rest if root == "corecoder" else None
        here = self.name.split(".") if self.is_package else self.name.split(".")[:-1]
        here = here[: len(here) - (node.level - 1)]
        return ".".join([*here, *([node.module] if node.module else [])])

    def functions(self) -> Iterator[ast.FunctionDef | ast.Lambda]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                yield node

    def inside_functions(self) -> set[ast.Import | ast.ImportFrom]:
        """The import statements that run only when a function does."""
        return {
            node
            for function in self.functions()
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }

    def commented(self, node: ast.stmt) -> bool:
        """Whether a comment stands on the line of `node`, or above the imports (and the `if`) that it belongs to."""
        at = node.lineno - 1
        if "#" in self.lines[at]:
            return True
        while at > 0:
            at -= 1
            line = self.lines[at].strip()
            if line.startswith("#") or (line.endswith(":") and "#" in line):
                return True
            if not line.startswith(("import ", "from ", "if ", "else:")):
                return False
            if "#" in line:
                return True
        return False


MODULES = [Module(path) for path in sorted(PACKAGE.rglob("*.py"))]
NAMES = {module.name for module in MODULES}


def layer_of(name: str) -> int | None:
    return LAYER.get(name.split(".")[0])


def places(found: Iterable[tuple[Module, int, str]]) -> list[str]:
    return [f"{module} line {line}: {what}" for module, line, what in found]


def test_every_module_has_a_layer_and_every_name_in_the_table_is_a_module() -> None:
    tops = {module.top for module in MODULES}
    assert tops - LAYER.keys() == set(), "put it into the table of layers, and into the map in AGENTS.md"
    assert LAYER.keys() - tops == set()


def test_imports_only_point_down() -> None:
    upwards = [
        (module, node.lineno, name)
        for module in MODULES
        for node, name, ours in module.imports()
        if ours and name != "__init__" and (layer_of(name) or 0) > LAYER.get(module.top, 6)
    ]
    assert places(upwards) == []


def test_no_import_goes_in_a_circle() -> None:
    graph = {
        module.name: {name for _, name, ours in module.imports() if ours and name != module.name} - {"__init__"}
        for module in MODULES
        if module.name != "__init__"
    }
    done: set[str] = set()

    def visit(name: str, path: list[str]) -> None:
        assert name not in path, " -> ".join([*path[path.index(name) :], name])
        if name not in done:
            for other in sorted(graph.get(name, ())):
                visit(other, [*path, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def test_imports_inside_functions_buy_start_up_time_and_say_so() -> None:
    faults = []
    for module in MODULES:
        for node in [] if module.top in DOORS else module.inside_functions():
            names = {name.split(".")[0] for each, name, ours in module.imports() if each is node}
            if not names <= WORTH_A_LATE_IMPORT | OURS_WORTH_A_LATE_IMPORT:
                faults.append((module, node.lineno, f"{sorted(names)} belongs to the top"))
            elif not module.commented(node):
                faults.append((module, node.lineno, f"say why {sorted(names)} is imported late"))
    assert places(faults) == []


def test_every_dataclass_is_made_the_cheap_way() -> None:
    faults = [
        (module, node.lineno, "from values, which makes it in a quarter of the time")
        for module in MODULES
        for node in module.nodes
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        # A search runs in a process of its own, which loads that package and nothing around it.
        if any(each.name == "dataclass" for each in node.names) and module.name != "values"
        if not module.name.startswith("tools.search.")
    ]
    assert places(faults) == []


def test_only_front_ends_know_the_terminal() -> None:
    faults = []
    for module in MODULES:
        if LAYER.get(module.top, 0) >= FRONT_END:
            continue
        faults += [
            (module, node.lineno, name)
            for node, name, ours in module.imports()
            if not ours and name.split(".")[0] in ONLY_FRONT_ENDS
        ]
        faults += [
            (module, node.lineno, node.func.id)
            for node in module.nodes
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "input")
        ]
    assert places(faults) == []


def test_only_jobs_starts_threads() -> None:
    faults = []
    for module in MODULES:
        if module.name == "jobs":
            continue
        for node in module.nodes:
            if isinstance(node, ast.Attribute) and node.attr in STARTS_THREADS:
                faults.append((module, node.lineno, node.attr))
            elif isinstance(node, ast.ImportFrom):
                faults += [(module, node.lineno, each.name) for each in node.names if each.name in STARTS_THREADS]
        faults += [
            (module, node.lineno, name)
            for node, name, ours in module.imports()
            if not ours and name.split(".")[0] in CONCURRENT and (module.name, name) not in LOOPS
        ]
    assert places(faults) == []


def test_no_module_uses_what_is_private_to_another() -> None:
    faults = []
    for module in MODULES:
        own = _defined(module) | NOT_PRIVATE
        for node in module.nodes:
            if isinstance(node, ast.ImportFrom):
                faults += [(module, node.lineno, each.name) for each in node.names if _is_private(each.name)]
            elif isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
                faults.append((module, node.lineno, node.attr))
    assert places(faults) == []


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(module: Module) -> set[str]:
    """Every name that a module gives to something of its own."""
    names = set()
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name):
            names |= {node.attr} if node.value.id in ("self", "cls") else set()
    return names


def test_no_module_keeps_state_of_its_own() -> None:
    faults = [
        (module, node.lineno, "global") for module in MODULES for node in module.nodes if isinstance(node, ast.Global)
    ]
    for module in MODULES:
        top = {
            target.id
            for node in module.tree.body
            if isinstance(node, ast.Assign | ast.AnnAssign)
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }
        for function in module.functions():
            inner = list(ast.walk(function))
            local = {node.id for node in inner if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
            faults += [
                (module, name.lineno, name.id) for name in map(_changed, inner) if name and name.id in top - local
            ]
    assert places(faults) == []


def _changed(node: ast.AST) -> ast.Name | None:
    """The plain name whose object this expression changes in place, if it does."""
    value: ast.expr | None = None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        value = node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        value = node.func.value
    return value if isinstance(value, ast.Name) else None


def test_nothing_that_only_some_systems_have_is_imported_unasked() -> None:
    unasked = [
        (module, node.lineno, name)
        for module in MODULES
        for node in module.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([each.name for each in node.names] if isinstance(node, ast.Import) else [node.module or ""])
        if name in NOT_EVERYWHERE
    ]
    assert places(unasked) == []


def test_the_command_line_loads_nothing_heavy() -> None:
    program = "import sys; before = set(sys.modules); import corecoder.cli; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "corecoder.cli" in ran.stdout
    assert (
        set(ran.stdout.split()) & (WORTH_A_LATE_IMPORT | ONLY_FRONT_ENDS | {"typing", "json", "dataclasses"}) == set()
    )
