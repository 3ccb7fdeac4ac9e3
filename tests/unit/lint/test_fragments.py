"""What changed and is named in no changelog fragment is told."""

from __future__ import annotations

from tests.lint import fragments


def test_files_belong_to_roles_modules_and_playbooks() -> None:
    paths = ["roles/slurm/tasks/main.yml", "plugins/modules/gpu_facts.py", "playbooks/tasks/lock.yml"]
    assert fragments.changed(paths) == ["gpu_facts", "playbooks", "slurm"]


def test_what_users_do_not_notice_belongs_to_nothing() -> None:
    paths = ["roles/slurm/README.md", "plugins/module_utils/_pci.py", "tests/test.sh", "docs/roles/slurm/tasks.md"]
    assert fragments.changed(paths) == []


def test_a_name_counts_where_it_stands_alone() -> None:
    text = "minor_changes:\n  - slurm_node - shows more.\n  - ``gpu_facts``, audit - and so on."
    assert fragments.unnamed(["slurm", "slurm_node", "gpu_facts", "audit"], text) == ["slurm"]
