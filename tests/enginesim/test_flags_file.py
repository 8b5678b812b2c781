"""The flags are read out of the package's source as its parser would register them."""

import ast
import importlib.util
import pathlib
from typing import Any

import pytest

SCRIPT = pathlib.Path(__file__).parents[2] / "enginesim" / "extract_flags.py"
spec = importlib.util.spec_from_file_location("extract_flags", SCRIPT)
assert spec is not None and spec.loader is not None
extract_flags: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(extract_flags)

CONSTANTS = """
SIZES = ["s", "m"]
BUILT_IN = frozenset({"b", "a"})
ALL = set(BUILT_IN)
class Backend:
    FULL = "full"
    OFF = "off"
    EVERY = (FULL, OFF)
"""


def flag_of(declaration: str) -> dict[str, Any] | None:
    source = f"class Group:\n    {declaration}\n"
    constants = extract_flags.Constants([CONSTANTS])
    found = list(extract_flags.flags_of(source, constants))
    return found[0] if found else None


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        pytest.param('port: A[int, "help"] = 1', {"kind": "int"}, id="int"),
        pytest.param('port: A[Optional[float], "help"] = None', {"kind": "float"}, id="optional"),
        pytest.param('port: A[bool, "help"] = False', {"kind": "switch"}, id="bool"),
        pytest.param('port: A[str, "help"]', {"kind": "str", "required": True}, id="required"),
        pytest.param(
            'port: A[Optional[List[int]], "h"] = None', {"kind": "int", "nargs": "+"}, id="list"
        ),
        pytest.param(
            'port: A[Literal["a", "b"], "h"] = "a"',
            {"kind": "str", "choices": ["a", "b"]},
            id="literal",
        ),
        pytest.param(
            'port: A[str, Arg(help="h", choices=SIZES + ["l"])] = "s"',
            {"kind": "str", "choices": ["s", "m", "l"]},
            id="sum-of-choices",
        ),
        pytest.param(
            'port: A[str, Arg(choices=ALL)] = "a"',
            {"kind": "str", "choices": ["a", "b"]},
            id="set-of-choices",
        ),
        pytest.param(
            'port: A[str, Arg(choices=Backend.EVERY)] = "full"',
            {"kind": "str", "choices": ["full", "off"]},
            id="class-of-choices",
        ),
        pytest.param(
            "port: A[Optional[bool], Arg(action=argparse.BooleanOptionalAction)] = None",
            {"kind": "boolean"},
            id="yes-or-no",
        ),
        pytest.param(
            "port: A[Optional[dict], Arg(type_parser=json.loads)] = None",
            {"kind": "json"},
            id="json",
        ),
    ],
)
def test_a_declaration_becomes_the_flag_that_it_registers(
    declaration: str, expected: dict[str, Any]
) -> None:
    assert flag_of(declaration) == {"names": ["--port"], "dest": "port", **expected}


def test_names_come_from_the_declaration_or_its_override_with_all_aliases() -> None:
    flag = flag_of('gemm: A[str, Arg(cli_name="--gemm-kind", aliases=["--gemm"])] = "a"')
    assert flag is not None
    assert flag["names"] == ["--gemm-kind", "--gemm"]


@pytest.mark.parametrize(
    "declaration",
    [
        pytest.param('hidden: A[str, Arg(no_cli=True)] = ""', id="no-cli"),
        pytest.param('rank: A[int, Derived(doc="d")]', id="derived"),
        pytest.param("_NS_PATH: str = ''", id="unannotated"),
    ],
)
def test_what_is_no_flag_gives_none(declaration: str) -> None:
    assert flag_of(declaration) is None


def test_an_unknown_constant_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="MISSING is defined in none of"):
        extract_flags.Constants([CONSTANTS]).value(ast.Name("MISSING"))


def test_the_file_is_what_the_script_writes() -> None:
    document = extract_flags.json.loads(extract_flags.TARGET.read_text())
    assert document["version"] == extract_flags.VERSION
    assert extract_flags.TARGET.read_text() == extract_flags.rendered(document)
