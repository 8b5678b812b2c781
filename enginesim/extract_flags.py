"""Reads SGLang's command line out of its published package into ``cascade_enginesim/flags.json``.

    python enginesim/extract_flags.py [WHEEL]

Only facts are taken (names, aliases, kinds, choices), by reading the syntax tree: nothing of the
package runs or is installed. Without a wheel, pip downloads the pinned version.
"""

import ast
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from typing import Any

VERSION = "0.5.23"
TARGET = pathlib.Path(__file__).parent / "cascade_enginesim" / "flags.json"

FIELDS = "sglang/srt/arg_groups/fields/"
CONSTANTS = (
    "sglang/srt/arg_groups/choices.py",
    "sglang/srt/model_executor/cuda_graph_config.py",
    "sglang/srt/utils/common.py",
    "sglang/srt/parser/reasoning_parser_names.py",
    "sglang/srt/function_call/parser_names.py",
)
SERVER_ARGS = "sglang/srt/server_args.py"
CANARY = "sglang/kernels/ops/kv_canary/consts.py"

KINDS = {"int": "int", "float": "float", "bool": "switch"}
PARSERS = {
    "json.loads": "json",
    "json_list_type": "json",
    "parse_cuda_graph_config_arg": "json",
    "human_readable_int": "size",
    "parse_cuda_graph_backend_arg": "str",
    "nullable_str": "str",
}
DYNAMIC_CHOICES = {
    # Choices that the package computes while it builds its parser, by field.
    "sampling_backend": ("SAMPLING_BACKEND_CHOICES", ()),
    "reasoning_parser": ("REASONING_PARSER_NAMES", ("auto",)),
    "tool_call_parser": ("TOOL_CALL_PARSER_NAMES", ("auto",)),
}

Flag = dict[str, Any]


class Constants:
    """Named lists of choices, collected from the modules that define them."""

    def __init__(self, sources: list[str]) -> None:
        self.named: dict[str, ast.expr] = {}
        for source in sources:
            for name, value in _assignments(ast.parse(source).body, prefix=""):
                self.named.setdefault(name, value)

    def value(self, node: ast.expr) -> Any:
        """What the expression stands for. Raises ``ValueError`` when it cannot be read."""
        if isinstance(node, ast.Name | ast.Attribute):
            name = ast.unparse(node)
            if name not in self.named:
                raise ValueError(f"{name} is defined in none of {', '.join(CONSTANTS)}")
            return self._in_scope(name)
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.value(item) for item in node.elts]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return [*self.value(node.left), *self.value(node.right)]
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("set", "frozenset", "sorted"):
            return sorted(self.value(node.args[0]))
        return ast.literal_eval(node)

    def _in_scope(self, name: str) -> Any:
        """A class attribute may refer to its neighbours by their bare names."""
        node, scope = self.named[name], name.rpartition(".")[0]
        if scope and isinstance(node, ast.Tuple):
            return [self.value(self.named[f"{scope}.{ast.unparse(item)}"]) for item in node.elts]
        return self.value(node)


def _assignments(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.expr]]:
    for statement in body:
        if isinstance(statement, ast.ClassDef) and not prefix:
            yield from _assignments(statement.body, f"{statement.name}.")
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield prefix + statement.targets[0].id, statement.value


def flags_of(source: str, constants: Constants) -> Iterator[Flag]:
    """The flags of one module of field declarations: ``name: A[type, help or Arg(...)]``."""
    for owner in ast.walk(ast.parse(source)):
        if isinstance(owner, ast.ClassDef):
            for statement in owner.body:
                if isinstance(statement, ast.AnnAssign) and _is_flag(statement):
                    flag = _flag(statement, constants)
                    if flag is not None:
                        yield flag


def _is_flag(statement: ast.AnnAssign) -> bool:
    annotation = statement.annotation
    return isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "A"


def _flag(statement: ast.AnnAssign, constants: Constants) -> Flag | None:
    assert isinstance(statement.annotation, ast.Subscript)
    assert isinstance(statement.annotation.slice, ast.Tuple)
    declared, *metadata = statement.annotation.slice.elts
    options: dict[str, ast.expr] = {}
    for entry in metadata:
        if isinstance(entry, ast.Call) and ast.unparse(entry.func) == "Arg":
            options = {k.arg: k.value for k in entry.keywords if k.arg}
        elif isinstance(entry, ast.Call) and ast.unparse(entry.func) == "Derived":
            return None
    name = ast.unparse(statement.target)
    if "no_cli" in options and name not in DYNAMIC_CHOICES:
        return None
    names = [ast.literal_eval(options["cli_name"])] if "cli_name" in options else []
    names = names or ["--" + name.replace("_", "-")]
    names += ast.literal_eval(options["aliases"]) if "aliases" in options else []
    flag: Flag = {"names": names, "dest": name, **_shape(declared, options, constants)}
    if name in DYNAMIC_CHOICES:
        flag["choices"] = _dynamic_choices(name, constants)
    if statement.value is None and flag["kind"] != "switch":
        flag["required"] = True
    return flag


def _dynamic_choices(name: str, constants: Constants) -> list[str]:
    constant, extra = DYNAMIC_CHOICES[name]
    return [*extra, *constants.value(ast.Name(constant))]


def _shape(declared: ast.expr, options: dict[str, ast.expr], constants: Constants) -> Flag:
    """Kind, number of values and choices, by the package's own rules (arg_utils.py)."""
    if "action" in options:
        action = ast.unparse(options["action"])
        if action == "argparse.BooleanOptionalAction":
            return {"kind": "boolean"}
        return {"kind": "str", "nargs": "*"}
    declared = _without_optional(declared)
    text = ast.unparse(declared)
    shape: Flag = {"kind": KINDS.get(text, "str")}
    if text.startswith("Literal["):
        assert isinstance(declared, ast.Subscript)
        values = ast.literal_eval(declared.slice)
        values = list(values) if isinstance(values, tuple) else [values]
        shape = {"kind": "int" if isinstance(values[0], int) else "str", "choices": values}
    elif text.startswith(("List[", "list[")) and "type_parser" not in options:
        assert isinstance(declared, ast.Subscript)
        shape = {"kind": KINDS.get(ast.unparse(declared.slice), "str"), "nargs": "+"}
    if "type_parser" in options:
        shape["kind"] = PARSERS[ast.unparse(options["type_parser"])]
    if "choices" in options:
        shape["choices"] = constants.value(options["choices"])
    if "nargs" in options:
        shape["nargs"] = ast.literal_eval(options["nargs"])
    return shape


def _without_optional(declared: ast.expr) -> ast.expr:
    if isinstance(declared, ast.Subscript) and ast.unparse(declared.value) == "Optional":
        return declared.slice
    if isinstance(declared, ast.BinOp) and ast.unparse(declared.right) == "None":
        return declared.left
    return declared


def registered_by_hand(
    source: str, canary: str, known: set[str], constants: Constants
) -> Iterator[Flag]:
    """Flags that the package registers outside its field declarations."""
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "parser.add_argument"):
            continue
        names = [ast.literal_eval(argument) for argument in node.args]
        if set(names) & known:
            continue
        options = {k.arg: k.value for k in node.keywords if k.arg}
        dest = names[0].lstrip("-").replace("-", "_")
        flag: Flag = {"names": names, "dest": dest, "kind": "str"}
        if dest in DYNAMIC_CHOICES:
            flag["choices"] = _dynamic_choices(dest, constants)
        elif dest == "kv_canary_real_data":
            flag["choices"] = _canary_modes(canary)
        elif "choices" in options:
            flag["choices"] = ast.literal_eval(options["choices"])
        elif "action" in options:
            flag["kind"] = "switch"
        yield flag


def _canary_modes(source: str) -> list[str]:
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef) and node.name == "RealKvHashMode":
            return [name.lower() for name, _ in _assignments(node.body, "")]
    raise ValueError(f"{CANARY} has no class RealKvHashMode")


def extract(wheel: pathlib.Path) -> dict[str, Any]:
    """Everything that ``flags.json`` holds, from one wheel of the package."""
    with zipfile.ZipFile(wheel) as archive:
        read = {name: archive.read(name).decode() for name in archive.namelist() if _wanted(name)}
    constants = Constants([read[name] for name in CONSTANTS])
    modules = sorted(name for name in read if name.startswith(FIELDS))
    flags = [flag for name in modules for flag in flags_of(read[name], constants)]
    known = {name for flag in flags for name in flag["names"]}
    flags += registered_by_hand(read[SERVER_ARGS], read[CANARY], known, constants)
    return {
        "source": f"sglang {VERSION}, facts of its command line (names, aliases, kinds, choices)",
        "licence": "Apache-2.0",
        "version": VERSION,
        "flags": sorted(flags, key=lambda flag: str(flag["names"][0])),
    }


def _wanted(name: str) -> bool:
    return name in (*CONSTANTS, SERVER_ARGS, CANARY) or (
        name.startswith(FIELDS) and name.endswith(".py")
    )


def rendered(document: dict[str, Any]) -> str:
    """The file's text: one flag a line, so that a new version shows as a readable difference."""
    head = {key: value for key, value in document.items() if key != "flags"}
    lines = ",\n".join(f"    {json.dumps(flag)}" for flag in document["flags"])
    return json.dumps(head, indent=2)[:-2] + f',\n  "flags": [\n{lines}\n  ]\n}}\n'


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if arguments:
            wheel = pathlib.Path(arguments[0])
        else:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest"]
            subprocess.run([*pip, folder, f"sglang=={VERSION}"], check=True)
            wheel = next(pathlib.Path(folder).glob("*.whl"))
        document = extract(wheel)
    TARGET.write_text(rendered(document))
    print(f"{len(document['flags'])} flags written to {TARGET}", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
