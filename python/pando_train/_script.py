"""Reads a script's text before it runs: a second call of pando.join or a run's loader, and the names that it logs."""
import ast
import sys
from typing import Any, Dict, Iterator, List, Optional, Sequence, Set

from .errors import PandoError

# Expressions with parts that may not run.
MAYBE = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# The columns of metrics.csv for training.
COLUMNS = ("step", "epoch", "accuracy", "lr", "images_per_second", "images_per_second_mean", "elapsed_seconds",
           "step_ms", "data_stall_ms", "exposed_sync_ms", "gpu_memory_mb", "gpu_percent")
EXITS = {"exit", "_exit", "quit", "abort"}


def find_second_join() -> Optional[int]:
    """Returns the line of a second call of join that certainly follows the first one; None: no call does.

    It looks at statements that always run: the script's, and those of functions that these call. The search
    ends at a branch or a loop that may end them.
    """
    tree = read_tree(getattr(sys.modules["__main__"], "__file__", None))
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    lines = list(find_joins(tree.body, functions, names_of_join(tree)))
    return lines[1] if len(lines) > 1 else None


def find_logged_names(given: Sequence[str]) -> List[str]:
    """Returns the names of values that the loop logs, without loss and correct, sorted: `given`, and those in the text.

    Those are the keywords of `mb.log` in the script, and in the file that calls join, for `mb` of a with block.
    """
    if isinstance(given, str):
        raise PandoError(f"log of pando.join is {given!r}: expected a list of names")
    names = set(given)
    for path in {getattr(sys.modules["__main__"], "__file__", None), sys._getframe(2).f_code.co_filename}:
        nodes = list(ast.walk(read_tree(path)))
        blocks = {item.optional_vars.id for node in nodes if isinstance(node, ast.With) for item in node.items
                  if isinstance(item.optional_vars, ast.Name) and isinstance(item.context_expr, ast.Call)
                  and ast.unparse(item.context_expr.func).endswith(".micro_batch")}
        names |= {keyword.arg for node in nodes if isinstance(node, ast.Call) and ast.unparse(node.func) in
                  {f"{block}.log" for block in blocks} for keyword in node.keywords if keyword.arg is not None}
    names -= {"loss", "correct"}
    for name in names:
        if not str(name).isidentifier() or name in COLUMNS or name.startswith("test_"):
            hint = "give correct=, the number of right answers; otherwise " if name == "accuracy" else ""
            raise PandoError(f"mb.log cannot log {name}: {hint}expected a word that is no column of metrics.csv "
                             f"({', '.join(COLUMNS)}), and does not begin with test_")
    return sorted(names)


def find_loop_around(run: Any) -> Optional[int]:
    """Returns the line of a caller's loop that would use this run again: one that makes no run and has no break."""
    frame = sys._getframe(2)
    while frame is not None:
        names = {name for name, value in frame.f_locals.items() if value is run}
        nodes = list(ast.walk(read_tree(frame.f_code.co_filename))) if names else []
        for node in nodes:
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                names -= set(node.names)  # a function that the loop calls may make another run
        for node in nodes if names else ():
            if isinstance(node, (ast.For, ast.While)) and node.body[0].lineno <= frame.f_lineno <= node.end_lineno:
                parts = list(ast.walk(node))
                stored = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
                if not names & stored and not any(isinstance(part, ast.Break) for part in parts):
                    return node.lineno
        frame = frame.f_back
    return None


def read_tree(path: Any) -> ast.Module:
    """Returns the text's statements; none for a notebook, or for a file that is not a script."""
    try:
        with open(path, encoding="utf-8") as file:
            return ast.parse(file.read())
    except (TypeError, OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def names_of_join(tree: ast.Module) -> Set[str]:
    """Returns the script's names of join: "pando.join", or "join" after `from pando_train import join`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {f"{alias.asname or alias.name}.join" for alias in node.names if alias.name == "pando_train"}
        elif isinstance(node, ast.ImportFrom) and node.module == "pando_train":
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "join"}
    return names


def find_joins(body: List[ast.stmt], functions: Dict[str, ast.FunctionDef], names: Set[str]) -> Iterator[int]:
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            continue
        if isinstance(statement, ast.With) or is_main_guard(statement):
            yield from find_joins(statement.body, functions, names)
            continue
        is_branch = hasattr(statement, "body") or hasattr(statement, "cases")  # a branch or a loop
        for call in () if is_branch else certain_calls(statement):
            name = ast.unparse(call.func)
            if name in names:
                yield call.lineno
            elif name in functions:
                others = {key: value for key, value in functions.items() if key != name}
                yield from find_joins(functions[name].body, others, names)
                if exits(functions[name]):
                    return
        if exits(statement) or any(isinstance(node, (ast.Return, ast.Raise)) for node in ast.walk(statement)):
            return


def certain_calls(node: ast.AST) -> Iterator[ast.Call]:
    if isinstance(node, ast.Call):
        yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, MAYBE):
            yield from certain_calls(child)


def exits(node: ast.AST) -> bool:
    """Returns whether the node may end the program."""
    return any(isinstance(child, ast.Call) and ast.unparse(child.func).split(".")[-1] in EXITS
               for child in ast.walk(node))


def is_main_guard(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"
