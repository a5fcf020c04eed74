"""Which code a function of a user's own consists of: its module and those beside it.

A record of a run should say when the function behind a name has changed. Its code is
the file of its module and, followed through import statements, every file that comes
from beside it: from the same folder, or from the folder that its package lies in.
Installed packages, the standard library and ffjax are not part of it; nor is what no
import statement names, such as data files or modules imported by a computed name.
"""

import ast
import hashlib
import inspect
import pathlib
import site
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Sequence

_FFJAX = pathlib.Path(__file__).parents[1]
_LIBRARIES = frozenset(
    pathlib.Path(path)
    for path in (
        *(sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib")),
        *(sysconfig.get_path(kind) for kind in ("purelib", "platlib")),
        *site.getsitepackages(),
        site.getusersitepackages(),
    )
)


def is_library(path: pathlib.Path) -> bool:
    """Whether a file belongs to Python, an installed package or ffjax."""
    return any(path.is_relative_to(folder) for folder in (_FFJAX, *_LIBRARIES))


def function_hash(fn: Callable[..., object]) -> str | None:
    """SHA-256 of the code of a function; None where its source is out of reach.

    It does not depend on where the folder lies or on what has been imported so far. The
    files are read now: what was edited after its import counts as edited. For a
    function typed in at a prompt or a notebook, it covers that function alone.
    """
    module = sys.modules.get(fn.__module__)
    try:
        if module is None or getattr(module, "__file__", None) is None:
            return hashlib.sha256(inspect.getsource(fn).encode()).hexdigest()
        return module_hash(module)
    except (OSError, TypeError):  # no such file, or no Python source
        return None


def module_hash(module: types.ModuleType) -> str:
    """SHA-256 over the names and contents of a module's files, in sorted order."""
    file = pathlib.Path(str(module.__file__)).absolute()
    root = _root(module, file)
    # An installed package counts whole if the function comes from it.
    package = root / file.relative_to(root).parts[0]
    contents: dict[pathlib.Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in contents or (
            is_library(path) and path != file and not path.is_relative_to(package)
        ):
            continue
        contents[path] = path.read_bytes()
        waiting += [*_packages(path, root), *_imports(path, contents[path], root)]
    digest = hashlib.sha256()
    names = {path.relative_to(root).as_posix(): path for path in contents}
    for name in sorted(names):
        text = contents[names[name]]
        digest.update(f"{name}\0{len(text)}\0".encode() + text)
    return digest.hexdigest()


def _root(module: types.ModuleType, file: pathlib.Path) -> pathlib.Path:
    """The folder that holds the module's outermost package, or the module itself."""
    name = module.__spec__.name if module.__spec__ else module.__name__
    folder = file.parent if file.name == "__init__.py" else file.with_suffix("")
    for part in reversed(name.split(".")):
        if folder.name != part:  # loaded by path, under a name of its own
            return file.parent
        folder = folder.parent
    return folder


def _packages(path: pathlib.Path, root: pathlib.Path) -> Iterator[pathlib.Path]:
    """The __init__.py of each package that is imported before a file in it."""
    folder = path.parent
    while folder != root:
        if (folder / "__init__.py").is_file():
            yield folder / "__init__.py"
        folder = folder.parent


def _imports(
    path: pathlib.Path, text: bytes, root: pathlib.Path
) -> Iterator[pathlib.Path]:
    """The files beside a module that its import statements name."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # compiled, or broken since it was imported
        return
    beside = (root, path.parent)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _files(beside, alias.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            folders = (path.parents[node.level - 1],) if node.level else beside
            package = node.module.split(".") if node.module else []
            for alias in node.names:
                yield from _files(folders, [*package, alias.name])


def _files(
    folders: Sequence[pathlib.Path], names: Sequence[str]
) -> Iterator[pathlib.Path]:
    """The files that importing a.b.c runs, as far as they lie in the folders."""
    for folder in folders:
        for name in names:
            package, module = folder / name / "__init__.py", folder / f"{name}.py"
            if not package.is_file() and module.is_file():
                yield module
                break  # what follows are names in it
            if package.is_file():
                yield package
            folder = folder / name
