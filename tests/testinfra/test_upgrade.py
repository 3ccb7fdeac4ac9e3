"""What `molecule test -s upgrade` expects: nodes changed one by one, and back at work."""

from __future__ import annotations

from typing import Any

Host = Any
NEW = "535.309.01"


def driver(node: Host) -> str:
    lines = node.check_output("nvidia-smi --query-gpu=driver_version --format=csv,noheader").splitlines()
    (version,) = set(lines)
    return str(version)


def state(ctl: Host, node: str) -> tuple[str, str]:
    """State and reason as Slurm shows them."""
    text = ctl.check_output("scontrol --oneliner show node | grep '^NodeName=%s '", node)
    reason = text.partition(" Reason=")[2].partition(" [")[0]
    return text.partition(" State=")[2].split()[0], reason


def test_all_nodes_have_the_newer_driver_and_work(ctl: Host, n1: Host, n2: Host) -> None:
    assert (driver(n1), driver(n2)) == (NEW, NEW)
    assert [state(ctl, name) for name in ("n1", "n2")] == [("IDLE", "")] * 2
    assert sorted(ctl.check_output("srun --immediate=30 --nodes=2 --gres=gpu:4 hostname").split()) == ["n1", "n2"]
