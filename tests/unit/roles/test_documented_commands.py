"""What pages tell a reader to type, open or name is there: commands to their last option, content, paths, links."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.cli.adhoc import AdHocCLI
from ansible.cli.doc import DocCLI
from ansible.cli.galaxy import GalaxyCLI
from ansible.cli.playbook import PlaybookCLI
from ansible_collections.gpuops.cluster.tests.unit.support.documented import (
    PAGES,
    PROJECT,
    ROLES,
    VARIABLES,
    commands,
    options,
)

from tests.lab import cli as lab_cli
from tests.lab.gpu.simulate import FAULTS, PROFILES

NAMESPACE = "gpuops.cluster."
READERS_OWN = {"inventory", "inventories/mine", "…"}
EXAMPLES = str(options("pytorch_env")["pytorch_env_examples_dir"]["default"])
TEMPLATE = PROJECT / "roles/pytorch_env/templates/examples.md.j2"
ROLE_FILES = {path.name.removesuffix(".j2") for path in PROJECT.glob("roles/*/*/**/*") if path.is_file()}
TASKS = "\n".join(
    path.read_text(encoding="utf-8") for part in ("tasks", "vars") for path in PROJECT.glob(f"roles/*/{part}/*.yml")
)
DEFAULTS = {str(option.get("default")) for role in ROLES for option in options(role).values()}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8").replace("{{ pytorch_env_examples_dir }}", EXAMPLES)


def parsed(parse: Callable[[], Any]) -> Any:
    """What a real parser makes of it; its own words as a ValueError when it refuses. None for --help."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            return parse()
    except SystemExit as end:
        if end.code not in (0, None):
            raise ValueError(said.getvalue().strip().splitlines()[-1]) from end
    return None


def ansible_words(cli: Any, words: list[str]) -> Any:
    one = cli(words)
    one.init_parser()
    return parsed(lambda: one.parser.parse_args(words[1:]))


def exists(what: str, name: str, *places: str) -> list[str]:
    return [] if any((PROJECT / place).exists() for place in places) else [f"there is no {what} {name}"]


def playbook_file(name: str) -> Path:
    return PROJECT / (f"playbooks/{name.removeprefix(NAMESPACE)}.yml" if name.startswith(NAMESPACE) else name)


def check_playbook(words: list[str]) -> list[str]:
    given = ansible_words(PlaybookCLI, words)
    wrong: list[str] = []
    names = [name for name in given.args if name != "…"]
    for name in names:
        wrong += exists("playbook", name, str(playbook_file(name)))
    for name in given.inventory or []:
        if name not in READERS_OWN:
            wrong += exists("inventory", name, f"{name}/hosts.yml", f"{name}/hosts.sh")
    read = [playbook_file(name) for name in names] + list(PROJECT.glob("playbooks/tasks/*.yml"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in read if path.exists())
    for pair in shlex.split(" ".join(given.extra_vars)):
        name, sign, _value = pair.partition("=")
        if not sign or (name not in VARIABLES and not re.search(rf"\b{name}\b", text)):
            wrong.append(f"neither a role nor the playbook reads {pair}")
    wrong += [f"no play has the tag {tag}" for tag in given.tags or [] if not re.search(rf"tags: .*\b{tag}\b", text)]
    return wrong


def check_galaxy(words: list[str]) -> list[str]:
    given = ansible_words(GalaxyCLI, words)
    version = yaml.safe_load((PROJECT / "galaxy.yml").read_text(encoding="utf-8"))["version"]
    ours = [name for name in given.args if name.startswith("gpuops-cluster-")]
    right = {f"gpuops-cluster-{one}.tar.gz" for one in (version, "VERSION")}
    return [f"{name} is not of version {version}" for name in ours if name not in right]


def check_doc(words: list[str]) -> list[str]:
    given = ansible_words(DocCLI, words)
    wrong: list[str] = []
    for name in given.args:
        short = name.removeprefix(NAMESPACE)
        folders = {"role": f"roles/{short}", "module": f"plugins/modules/{short}.py"}
        wrong += exists(given.type, name, folders.get(given.type, f"plugins/{given.type}/{short}.py"))
    return wrong


def check_adhoc(words: list[str]) -> list[str]:
    given = ansible_words(AdHocCLI, words)
    name = given.module_name.removeprefix(NAMESPACE)
    path = PROJECT / "plugins/modules" / f"{name}.py"
    wrong = exists("module", given.module_name, str(path)) if name != given.module_name else []
    if path.exists():
        known = yaml.safe_load(re.split('DOCUMENTATION = r?"""', path.read_text(encoding="utf-8"))[1].split('"""')[0])
        named = [word.partition("=")[0] for word in shlex.split(given.module_args)]
        wrong += [f"{name} has no option {option}" for option in named if option not in known["options"]]
    return wrong


def check_scenarios(names: list[str]) -> list[str]:
    return [text for name in names for text in exists("scenario", name, f"molecule/{name}/molecule.yml")]


def check_lab(words: list[str]) -> list[str]:
    given = parsed(lambda: lab_cli.parser().parse_args(words))
    word = getattr(given, "word", "")
    profiles = {f"h100x{count}" for count in range(1, 9)} if word == "up" and given.vm else set(PROFILES)
    if word == "up" and given.gpus not in {*profiles, "none"}:
        return [f"no profile {given.gpus}"]
    if word == "fault":
        return [f"no fault {one}" for one in given.settings if one.partition("=")[0] not in FAULTS]
    return []


def check_test(words: list[str]) -> list[str]:
    usage = re.search(r"\./run test \[(\S+) \[scenario", (PROJECT / "tests/test.sh").read_text(encoding="utf-8"))
    assert usage
    part, names = (words or [""])[0], words[1:]
    if part == "core":
        return [] if len(names) == 1 and re.fullmatch(r"2\.\d+", names[0]) else ["./run test core wants a release"]
    if part not in {"", *usage[1].split("|")} or (names and part != "molecule"):
        return [f"./run test knows no {' '.join(words)}"]
    return check_scenarios(names)


def check_run(words: list[str]) -> list[str]:
    word, rest = words[1], words[2:]
    known = re.findall(r"^  ([a-z]+)\)", (PROJECT / "run").read_text(encoding="utf-8"), flags=re.MULTILINE)
    if word not in known:
        return [f"./run knows no {word}"]
    if word == "docs":
        return [] if rest in ([], ["--check"], ["site"]) else [f"./run docs knows no {' '.join(rest)}"]
    checks: dict[str, Callable[[list[str]], list[str]]] = {
        "site": lambda more: check_playbook(["ansible-playbook", "site.yml", *more]),
        "lab": check_lab,
        "test": check_test,
    }
    return checks[word](rest) if word in checks else []


def check_sbatch(words: list[str]) -> list[str]:
    """An example is started by the batch script, under its name, with options that it has."""
    files = [word for word in words if word.startswith(f"{EXAMPLES}/") or word.endswith(".py")]
    wrong = [f"{name} is not installed" for name in files if name.rpartition("/")[2] not in ROLE_FILES]
    programs = [PROJECT / "roles/pytorch_env/files/examples" / name for name in files if name.endswith(".py")]
    for program in programs if not wrong else []:
        text = program.read_text(encoding="utf-8")
        after = words[words.index(program.name) + 1 :]
        wrong += [f"{program.name} has no {one}" for one in after if one.startswith("--") and f'"{one}"' not in text]
    return wrong


def check_installed(words: list[str]) -> list[str]:
    """A program or folder that a role puts on nodes."""
    path, name = words[0], words[0].rpartition("/")[2]
    if path.startswith("/opt/gpuops/"):
        return (
            []
            if path in DEFAULTS or (path == f"{EXAMPLES}/{name}" and name in ROLE_FILES)
            else [f"no role makes {path}"]
        )
    if path.startswith("/usr/local/lib/gpuops/") and path not in TASKS and f"{name}.py" not in ROLE_FILES:
        return [f"no role installs {path}"]
    return check_health(words) if name == "node_health" else []


def check_health(words: list[str]) -> list[str]:
    text = (PROJECT / "roles/node_health/files/node_health.py").read_text(encoding="utf-8")
    return [f"node_health has no {word}" for word in words[1:] if f'"{word}"' not in text]


def check_units(words: list[str]) -> list[str]:
    """Roles name some units by a loop's item."""
    named = re.findall(r"dest: /etc/systemd/system/(.+)$", TASKS, flags=re.MULTILINE)
    named += re.findall(r"'/etc/systemd/system/(.+?)'", TASKS)
    shapes = [re.sub(r"\\\{\\\{.*?\\\}\\\}|%s", "[a-z]+", re.escape(name)) for name in named]
    ours = [word for word in words[2:] if word.startswith("gpuops-")]
    return [f"no role installs the unit {unit}" for unit in ours if not any(re.fullmatch(s, unit) for s in shapes)]


def check_copy(words: list[str]) -> list[str]:
    return exists("folder", words[-2], words[-2])


CHECKS: dict[str, Callable[[list[str]], list[str]]] = {
    "./run": check_run,
    "ansible": check_adhoc,
    "ansible-doc": check_doc,
    "ansible-galaxy": check_galaxy,
    "ansible-playbook": check_playbook,
    "ansible-test": lambda words: [] if words[1] in {"sanity", "units"} else [f"ansible-test knows no {words[1]}"],
    "cp": check_copy,
    "molecule": lambda words: check_scenarios([b for a, b in zip(words, words[1:]) if a in {"-s", "--scenario-name"}]),
    "node_health": check_health,
    "sbatch": check_sbatch,
    "systemctl": check_units,
}


def complaints(command: str) -> list[str]:
    words = shlex.split(command)
    if len(words) == 1 and not words[0].startswith("/"):
        return []  # a program's name in a sentence
    check = check_installed if words[0].startswith("/") else CHECKS.get(words[0])
    if not check:
        return [f"this test does not know {words[0]}"]
    try:
        return check(words)
    except ValueError as refusal:
        return [str(refusal)]


NAMED = [
    pytest.param(command, id=f"{page.relative_to(PROJECT)}: {command}")
    for page in [*PAGES, PROJECT / "tests/lab/README.md", TEMPLATE]
    for command in commands(text_of(page))
]


@pytest.mark.parametrize("command", NAMED)
def test_a_command_of_a_page_is_real(command: str) -> None:
    assert not complaints(command)


def test_commands_are_found_wherever_they_stand() -> None:
    page = """
Type `./run lab down` or, in `.venv`, `.venv/bin/ansible-playbook site.yml`.

    LAB=x ansible-playbook a.yml -i inventory      # remark
    # /usr/local/lib/gpuops/node_health            by hand

```
./run site     # builds
ansible-galaxy collection \\
  install x.tar.gz
```

```yaml
    ansible-playbook: not a command
```
"""
    assert sorted(commands(page)) == [
        "./run lab down",
        "./run site",
        "/usr/local/lib/gpuops/node_health",
        "ansible-galaxy collection",
        "ansible-playbook a.yml -i inventory",
        "ansible-playbook site.yml",
    ]


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("ansible-playbook gpuops.cluster.sites -i inventory", "no playbook gpuops.cluster.sites"),
        ("ansible-playbook gpuops.cluster.site -i inventories/other", "no inventory inventories/other"),
        ("ansible-playbook gpuops.cluster.site --chekc", "--chekc"),
        ("ansible-playbook gpuops.cluster.site -e slurm_no_such=1", "slurm_no_such=1"),
        ("ansible-playbook gpuops.cluster.site -e bundle_host=n1", "bundle_host=n1"),
        ("ansible-playbook gpuops.cluster.acceptance --tags trainings", "no play has the tag trainings"),
        ("ansible-galaxy collection install gpuops-cluster-0.0.9.tar.gz", "not of version"),
        ("ansible-doc -t role gpuops.cluster.cuda", "no role gpuops.cluster.cuda"),
        ("ansible-doc gpuops.cluster.gpu_fact", "no module gpuops.cluster.gpu_fact"),
        ("ansible all -m gpuops.cluster.gpu_fact", "no module gpuops.cluster.gpu_fact"),
        ("ansible all -m gpuops.cluster.slurm_node -a 'node=n1 state=drained'", "no option node"),
        ("./run sites", "./run knows no sites"),
        ("./run test molecules", "./run test knows no molecules"),
        ("./run test molecule fabric_vms", "no scenario fabric_vms"),
        ("./run test core", "wants a release"),
        ("./run docs --chekc", "./run docs knows no --chekc"),
        ("./run lab up --node 3 --gpu h100x8 --suit sid", "sid"),
        ("./run lab up --gpus h100x7", "no profile h100x7"),
        ("./run lab up --vm --gpus b200x8", "no profile b200x8"),
        ("./run lab fault n1 cold=3", "no fault cold=3"),
        ("./run site -i inventories/none", "no inventory inventories/none"),
        ("molecule test -s none", "no scenario none"),
        (f"sbatch {EXAMPLES}/train.sbatch train_none.py", "train_none.py is not installed"),
        (f"sbatch {EXAMPLES}/train.sbatch train_ddp.py --epoch 3", "train_ddp.py has no --epoch"),
        (f"{EXAMPLES}/none", "no role makes"),
        ("/usr/local/lib/gpuops/none", "no role installs"),
        ("node_health --forget", "node_health has no --forget"),
        ("systemctl status gpuops-none.timer", "no role installs the unit"),
        ("cp -r inventories/none inventories/mine", "no folder inventories/none"),
    ],
)
def test_a_wrong_command_is_found(command: str, why: str) -> None:
    assert why in " ".join(complaints(command))


CONTENT = {
    path.name.split(".")[0] if path.is_file() else path.name
    for path in [*PROJECT.glob("roles/*"), *PROJECT.glob("playbooks/*.yml"), *PROJECT.glob("plugins/[!_m]*/*")]
} | {path.stem for path in PROJECT.glob("plugins/modules/*.py")}
TOP = {path.name for path in PROJECT.iterdir() if path.is_dir()}


def leads_somewhere(page: Path, target: str, sharp: str, anchor: str) -> bool:
    """A link's file is there, and the heading that it names."""
    path = page.parent / target if target else page
    if not sharp or not path.exists():
        return path.exists()
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return anchor in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(PROJECT)))
def test_what_a_page_names_is_there(page: Path) -> None:
    """Names of this collection, paths in code marks, and links. Capitals stand for the reader's own."""
    text = page.read_text(encoding="utf-8")
    assert not set(re.findall(r"gpuops\.cluster\.([a-z_0-9]+)", text)) - CONTENT
    paths = [path for path in re.findall(r"`([\w.]+/[\w./*-]+)`", text) if path.split("/")[0] in TOP]
    general = re.compile(r"[A-Z]{3}|inventories/mine|^reports")
    assert not [path for path in paths if not general.search(path) and not list(PROJECT.glob(path.rstrip("/")))]
    links = re.findall(r"\]\((?!https?:|mailto:)([^)\s]+)\)", text)
    assert not [link for link in links if not leads_somewhere(page, *link.partition("#"))]


RUN = "\n".join(
    path.read_text(encoding="utf-8")
    for path in [*PROJECT.glob("molecule/*/*.yml"), *PROJECT.glob("tests/testinfra/*.py"), PROJECT / "tests/site.sh"]
)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROJECT.glob("playbooks/*.yml")))
def test_a_playbook_is_run_by_a_scenario(name: str) -> None:
    """What pages tell to type is at least run once against real systems."""
    assert re.search(rf'import_playbook: gpuops\.cluster\.{name}\b|playbooks/{name}\.yml|book="{name}"', RUN)
