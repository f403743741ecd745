"""Statements of the documents (README.md, CONTRIBUTING.md, docs/, folders' README.md) are true.

Links, files, modules and flags that they name exist; figures are in the records; sentences of pages for users are
short. tests/documents/ runs each command as a newcomer would.
"""

import ast
import inspect
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bert import REPOSITORY, api, api_settings
from docs import curves, drawings, results, screenshots
from tests.benchmarks.published_throughput import TABLES
from tests.documents import document
from tests.support.documents import COMMANDS, FENCE, FOLDERS, TEXTS, commands
from tests.test_layers import ORDER


def test_each_command_is_typed_by_one_test():
    """The commands are read from the source: a test notices one that joins or leaves without running the others."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (REPOSITORY / "tests/documents").glob("*.py")]
    typed: Counter[str] = Counter()
    for node in (node for tree in trees for node in ast.walk(tree)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
            continue
        if node.func.id in ("command", "commands") and isinstance(node.args[0], ast.Constant):
            start = node.args[0].value
            typed.update([document.command(start)] if node.func.id == "command" else document.commands(start))
    elsewhere = [line for line in COMMANDS if line.startswith(document.NOT_FROM_INSIDE)]
    assert typed + Counter(elsewhere) == Counter(COMMANDS)


# What the documents name exists


def without_fences(text: str) -> str:
    return FENCE.sub("", text)


def passages(text: str) -> list[str]:
    """Return rows of tables, paragraphs, and commands."""
    return [*re.split(r"\n\n+|\n(?=[|])", without_fences(text)), *commands(text)]


def code_spans(text: str) -> list[str]:
    """Return the texts in backticks."""
    return re.findall(r"`([^`]+)`", without_fences(text))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_fences(path.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def exists(name: str, bases: list[Path]) -> bool:
    """Tell whether a path exists; NAME in capitals stands for any name."""
    pattern = name.replace("NAME", "*").rstrip("/")
    return any(any(base.glob(pattern)) for base in bases)


@cache
def defined() -> tuple[set[str], set[str]]:
    """Return the flags that some source writes out, and the names that may be fields of settings."""
    files = [*REPOSITORY.glob("*.py"), REPOSITORY / "run.sub"]
    files += [path for name in FOLDERS for path in (REPOSITORY / name).rglob("*") if path.suffix in (".py", ".sh")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path != Path(__file__).resolve())
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)), set(re.findall(r"\b(\w+): ", text))


def each(wrong: Callable[[str], list[str]]) -> dict[str, list[str]]:
    """Return the errors in each document that has some.

    The page of changes and the lab books (tests/research) may name what was removed since.
    """
    dated = ("CHANGELOG.md", "tests/research/")
    names = [name for name in TEXTS if not name.startswith(dated) or wrong is dead_links]
    return {name: found for name in names if (found := wrong(name))}


def test_relative_links_lead_somewhere():
    assert each(dead_links) == {}


def dead_links(name: str) -> list[str]:
    dead = []
    for target in re.findall(r"\]\(([^)]+)\)", without_fences(TEXTS[name])):
        path, _, anchor = target.partition("#")
        linked = ((REPOSITORY / name).parent / path).resolve() if path else REPOSITORY / name
        is_alive = linked.exists() and (not anchor or anchor in anchors(linked))
        if not is_alive and not target.startswith(("http://", "https://")):
            dead.append(target)
    return dead


def test_named_files_exist():
    assert each(missing_files) == {}


def missing_files(name: str) -> list[str]:
    """Return paths that neither the root, the document's folder, nor a room named in the same passage has."""
    missing = []
    for passage in passages(TEXTS[name]):
        rooms = [REPOSITORY / room for room in re.findall(r"`((?:bert|data|tests|scripts)/[\w/]*)`", passage)]
        bases = [REPOSITORY, REPOSITORY / "scripts", (REPOSITORY / name).parent, *rooms]
        spans = [passage] if passage in COMMANDS else code_spans(passage)
        for word in re.findall(r"[\w./*-]+", " ".join(spans)):
            is_ours = word.startswith(tuple(f"{folder}/" for folder in FOLDERS))
            is_code = re.fullmatch(r"[\w./*-]*[\w*]\.(py|sh|sub|md)", word) and not word.startswith(
                ("results/", "mine/")
            )
            if (is_ours or is_code) and not exists(word, bases):
                missing.append(word)
    return missing


def test_named_modules_exist():
    assert each(missing_modules) == {}


def missing_modules(name: str) -> list[str]:
    """Return names that are no module and not defined in one; `bert.encoder...` are tensors."""
    missing = []
    for module in re.findall(r"\b(?!bert\.encoder\.)(?:bert|data|tests)(?:\.[a-z_]+)+\b(?!\.\w)", TEXTS[name]):
        path = REPOSITORY / module.replace(".", "/")
        if path.is_dir() or path.with_suffix(".py").is_file():
            continue
        parent = (
            path.parent.with_suffix(".py") if path.parent.with_suffix(".py").is_file() else path.parent / "__init__.py"
        )
        if not parent.is_file() or path.name not in parent.read_text(encoding="utf-8"):
            missing.append(module)
    return missing


def test_named_flags_exist():
    assert each(missing_flags) == {}


def missing_flags(name: str) -> list[str]:
    """Return flags that no source writes out and no name of a field makes."""
    modules = tuple(f".venv/bin/python -m {package}" for package in ("bert", "data", "tests"))
    ours = ("bash scripts/", "bash data/", ".venv/bin/python run_", *modules)
    words = " ".join([*code_spans(TEXTS[name]), *(line for line in commands(TEXTS[name]) if line.startswith(ours))])
    missing, (flags, fields) = [], defined()
    for flag in re.findall(r"(?<!\S)--[a-z][\w-]*", words):
        field = re.sub(r"^(phase[12]-)?(no-)?", "", flag[2:]).replace("-", "_")
        if flag not in flags and field not in fields:
            missing.append(flag)
    return missing


def test_every_block_says_its_language():
    assert {language for text in TEXTS.values() for language, _ in FENCE.findall(text)} <= {"bash", "python", "text"}


def test_the_map_shows_every_room():
    rooms = {
        path.parent
        for path in [*(REPOSITORY / "bert").glob("*/__init__.py"), *(REPOSITORY / "data").glob("*/__init__.py")]
    }
    text = TEXTS["docs/explanation/architecture.md"]
    assert [room for room in rooms if f"`{room.relative_to(REPOSITORY)}/`" not in text] == []


def test_the_fault_matrix_shows_every_row():
    shown = {int(number) for number in re.findall(r"^\| (\d+) \|", TEXTS["tests/README.md"], re.M)}
    assert shown == {*range(1, 40)} - {29}, "29 compares exports; it is said below the table"


def test_no_command_of_the_afternoon_needs_more_than_three_flags():
    lines = commands(TEXTS["docs/tutorials/afternoon.md"])
    assert lines and len(lines) == len(set(lines))
    assert [line for line in lines if len(re.findall(r"(?<!\S)--\w", line)) > 3] == []


def test_every_documented_visualdl_command_is_without_telemetry():
    lines = [line for text in TEXTS.values() for line in text.splitlines() if "visualdl" in line and "--logdir" in line]
    assert lines and all("--disable-telemetry" in line for line in lines), lines


# Variables and packages

_VARIABLE = re.compile(r"\bBERT_[A-Z]+(?:_[A-Z]+)*\b")
# Variables that our commands set for the processes that they start. BERT_MODEL is a part of a path.
_OF_OUR_PROCESSES = {
    "BERT_CALLER",
    "BERT_COMMAND_STARTED",
    "BERT_EXIT_CODE_FILE",
    "BERT_FULL_FAULTS",
    "BERT_LAUNCHER",
    "BERT_MODEL",
    "BERT_QUIET_COUNTS",
    "BERT_QUIET_STEPS",
    "BERT_STOPPED_BY",
    "BERT_WITHHELD",
}


def test_the_page_of_variables_names_those_that_the_code_reads():
    files = [*REPOSITORY.glob("*.py"), REPOSITORY / "run.sub", REPOSITORY / "Dockerfile"]
    files += [path for room in ("bert", "data", "scripts") for path in (REPOSITORY / room).rglob("*.py")]
    files += (REPOSITORY / "scripts").rglob("*.sh")
    named = {name for path in files for name in _VARIABLE.findall(path.read_text(encoding="utf-8"))}
    assert named >= _OF_OUR_PROCESSES
    assert set(_VARIABLE.findall(TEXTS["docs/reference/environment.md"])) == named - _OF_OUR_PROCESSES


def test_the_page_of_security_names_the_packages_that_are_held_back():
    """The page also tells their known faults, as `bash scripts/sbom.sh` prints them."""
    script = (REPOSITORY / "scripts/sbom.sh").read_text(encoding="utf-8")
    rows = [row.split(" | ") for row in re.findall(r"^\| ([^-|].*) \|$", script, re.M)][1:]
    shown = {row.split(" | ")[0]: row for row in re.findall(r"^\| ([^-|].*) \|$", TEXTS["docs/privacy.md"], re.M)}
    weak = [row for row in rows if row[2] != "nothing known"]
    assert len(weak) >= 4 and "numpy, protobuf and setuptools are held back" in TEXTS["docs/privacy.md"]
    assert {row[0] for row in rows} - {row[0] for row in weak} == {"numpy", "protobuf", "setuptools"}
    for package, version, known, *_ in weak:
        identities = re.findall(r"CVE-[\d-]+|`[^`]+`", known)
        assert [part for part in (version, *identities) if part not in shown[package]] == []


# Pictures


def test_the_drawings_are_those_of_the_script():
    """`python docs/drawings.py` makes the drawings again."""
    for name, draw in drawings.DRAWINGS.items():
        assert (REPOSITORY / "docs/pictures" / name).read_text(encoding="utf-8") == draw(), name


@pytest.mark.parametrize("name", curves.CURVES)
def test_the_curves_are_those_of_the_records(name, tmp_path):
    """`python -m docs.curves` makes the curves again."""
    curves.CURVES[name](tmp_path / name)
    with Image.open(REPOSITORY / "docs/pictures" / name) as shown, Image.open(tmp_path / name) as drawn:
        assert shown.size == drawn.size
        difference = np.abs(np.asarray(shown.convert("L"), float) - np.asarray(drawn.convert("L"), float))
    assert difference.mean() < 0.5, "grey levels of 255"


def test_the_curve_of_recall_stands_in_the_lab_book():
    curve = results.subject("search")["curve"]
    details = (REPOSITORY / curve["details"]).read_text(encoding="utf-8")
    assert [quote for quote in curve["evidence"] if quote not in details] == []
    assert {*curve["recall"], curve["baseline"]} <= numbers(" ".join(curve["evidence"]))


@pytest.mark.parametrize(
    ("page", "picture"), [("monitor", "report.png"), ("serve", "server.png"), ("serve", "search.png")]
)
def test_a_page_shows_its_screenshot(page, picture):
    """`python docs/screenshots.py` makes the screenshots again; Chromium may be missing here."""
    content = (REPOSITORY / "docs/pictures" / picture).read_bytes()
    assert content.startswith(b"\x89PNG") and len(content) < screenshots.MOST_BYTES
    assert f"](../pictures/{picture})" in TEXTS[f"docs/howto/{page}.md"]


def test_screenshots_without_chromium_say_how_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit, match="Chromium is not installed; run `apt-get install chromium`"):
        screenshots.report_picture()


def test_the_drawing_of_the_layers_has_every_room_in_its_order():
    position = {name.replace(".", "/"): number for number, name in enumerate(ORDER)}
    position |= {"program.py": position["program"], "run_*.py": position["entry points"]}
    layers = [
        [position.get(room, position.get(room.removesuffix(".py"))) for room in rooms]
        for _, _, rooms in drawings.LAYERS
    ]
    shown = {number for layer in layers for number in layer}
    packages = {name for name in position if (REPOSITORY / name / "__init__.py").is_file() and name != "bert"}
    assert {name for name in packages if position[name] not in shown} == set()
    for upper, lower in zip(layers, layers[1:], strict=False):
        assert min(upper) > max(lower), "imports point down"


# Results


def test_the_page_of_results_is_what_its_script_makes():
    """`python docs/results.py` makes the page again."""
    assert TEXTS["docs/results.md"] == results.page()


@pytest.mark.parametrize("subject", [name for name in results.SUBJECTS if name != "planner"])
def test_each_result_stands_in_the_file_with_its_details(subject):
    """The quoted words hold the figure and its baseline, and the file holds the quoted words."""
    for row in results.subject(subject)["rows"]:
        details = (REPOSITORY / row["details"]).read_text(encoding="utf-8")
        assert [quote for quote in row["evidence"] if quote not in details] == [], row["what"]
        quotes = " ".join(row["evidence"])
        if "baseline_details" in row:
            assert row["baseline_evidence"] in (REPOSITORY / row["baseline_details"]).read_text(encoding="utf-8")
            quotes += row["baseline_evidence"]
        is_known = row["baseline_name"] in ("chance", "unigram entropy") and row["baseline"] in ("50", "0")
        assert row["value"] in quotes and (is_known or row["baseline"] in quotes), row["what"]


def test_published_figures_are_recorded_throughputs_of_nvidia():
    throughputs = {f"{figure:,.0f}" for table in TABLES for figure in table.figures().values()}
    rows = [row for row in results.subject("planner")["rows"] if row["unit"] == "sequences/s"]
    assert len(rows) == 5 and {row["published"] for row in rows} <= throughputs


def numbers(text: str) -> set[str]:
    """Return numbers as they are written, without the names and paths in backticks."""
    return set(re.findall(r"(?<![\w.-])\d[\d,]*(?:\.\d+)?(?![\w-])", re.sub(r"`[^`]*`", "", text)))


SOURCES = ("command", "commit", "date", "details", "evidence", "baseline_details", "baseline_evidence")


@pytest.mark.parametrize(
    ("page", "head"), [("docs/choose.md", "|"), ("README.md", "| measured |")], ids=["choose", "README"]
)
def test_figures_of_tables_are_recorded(page, head):
    """In README.md only the table of results is checked."""
    subjects = [results.subject(name) for name in results.SUBJECTS]
    rows = [row for subject in subjects for row in [*subject["rows"], *subject.get("plans", [])]]
    figures = [subject["text"] for subject in subjects]
    figures += [str(text) for row in rows for field, text in row.items() if field not in SOURCES]
    known = {number for text in figures for number in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
    tables = re.findall(r"(?:^\|.*\n)+", without_fences(TEXTS[page]), re.M)
    shown = set().union(*(numbers(table) for table in tables if table.startswith(head)))
    assert shown and shown - known == set()


def test_the_example_of_the_readme_calls_public_functions():
    """tests/test_package.py runs the same functions, as docs/howto/python.md shows them."""
    (example,) = [block for language, block in FENCE.findall(TEXTS["README.md"]) if language == "python"]
    for node in ast.walk(ast.parse(example)):
        if isinstance(node, ast.ImportFrom):
            assert node.module == "bert.api" and {name.name for name in node.names} <= {*api.__all__}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in api.__all__:
            function = inspect.signature(getattr(api, node.func.id)).parameters
            settings = {*function, *api_settings.ClassifySettings.__annotations__}
            assert {keyword.arg for keyword in node.keywords} <= settings


# Sentences

LONGEST_SENTENCE, MOST_CODE = 25, 5  # words; pieces of code, beyond which a sentence is a list of names
BANNED = ("those of", "that of", "is said", "as they say", "own text", "words alone", "anew")
USER_PAGES = sorted(name for name in TEXTS if name == "README.md" or name.startswith("docs/"))


def sentences(text: str) -> list[str]:
    """Return sentences of paragraphs and lists, with each piece of code as one word; no tables, headings or flags."""
    prose = re.sub(r"`[^`]*`", "CODE", re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", without_fences(text)))
    lines = ["" if re.match(r"[|#]|<!--", line) else line for line in prose.splitlines()]
    passages = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", "\n".join(lines))
    items = [" ".join(re.sub(r"^\s*(?:[-*]|\d+\.) ", "", passage).split()) for passage in passages]
    items = [item for item in items if item and not item.startswith("CODE")]
    found = [sentence for item in items for sentence in re.split(r"(?<=[.!?])(?:\*\*)? +(?=[A-Z0-9*\"'(])", item)]
    return [sentence for sentence in found if sentence.count("CODE") <= MOST_CODE]


def num_words(sentence: str) -> int:
    return len([word for word in sentence.split() if re.search(r"\w", word)])


def test_sentences_are_found():
    text = "# A heading\n\nTwo words. See [the page](x.md) and `a b`!\n\n- `--flag`: a flag\n- An item\n\n| a | b |\n"
    assert sentences(text) == ["Two words.", "See the page and CODE!", "An item"]
    assert [num_words(sentence) for sentence in sentences(text)] == [2, 5, 2]


@pytest.mark.parametrize("page", USER_PAGES)
def test_sentences_of_pages_for_users_are_short(page):
    long = [sentence for sentence in sentences(TEXTS[page]) if num_words(sentence) > LONGEST_SENTENCE]
    assert [f"{num_words(sentence)} words: {sentence}" for sentence in long] == []


@pytest.mark.parametrize("page", USER_PAGES)
def test_pages_for_users_have_no_banned_phrase(page):
    prose = re.sub(r"`[^`]*`", "", without_fences(TEXTS[page]))
    lines = [" ".join(part.split()) for part in re.split(r"\n\n|\n(?=[|]|\s*(?:[-*]|\d+\.) )", prose)]
    found = [(phrase, line) for line in lines for phrase in BANNED if re.search(rf"\b{phrase}\b", line, re.I)]
    assert found == []
