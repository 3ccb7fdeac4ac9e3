"""What Slurm says as metrics."""

from __future__ import annotations

from ansible_collections.gpuops.cluster.plugins.module_utils import _slurm_metrics as metrics
from ansible_collections.gpuops.cluster.plugins.module_utils._slurm_drain import Node

NODES = [
    Node("n1", ("MIXED",), gpus=8, gpus_used=3),
    Node("n2", ("IDLE", "DRAIN"), "new cable", "root", gpus=8),
    Node("n3", ("IDLE",), gpus=8),
    Node("n4", ("DOWN", "NOT_RESPONDING"), gpus=8),
    Node("n5", ("PLANNED",), gpus=4),
]
QUEUE = """\
RUNNING|None|2026-02-28T08:00:00
PENDING|Resources|2026-02-28T23:30:00
PENDING|Priority|2026-03-01T00:10:00
PENDING|JobHeldUser|2026-01-01T00:00:00
"""


def test_a_page() -> None:
    page = metrics.render(True, NODES, QUEUE, "2026-03-01T00:30:00").splitlines()
    assert "gpuops_slurm_up 1" in page
    standings = {"idle": 1, "busy": 1, "out": 2, "other": 1}
    assert {f'gpuops_slurm_nodes{{standing="{name}"}} {count}' for name, count in standings.items()} <= set(page)
    assert {"gpuops_slurm_gpus 36", "gpuops_slurm_gpus_used 3"} <= set(page)
    assert {'gpuops_slurm_jobs{state="pending"} 3', 'gpuops_slurm_jobs{state="running"} 1'} <= set(page)
    # The job that its user holds waits for nobody.
    assert "gpuops_slurm_oldest_waiting_seconds 3600" in page


def test_an_empty_queue_has_zeros() -> None:
    page = metrics.render(True, [], "", "2026-03-01T00:30:00")
    assert 'gpuops_slurm_jobs{state="running"} 0' in page
    assert "gpuops_slurm_oldest_waiting_seconds 0" in page


def test_a_controller_that_does_not_answer_says_nothing_else() -> None:
    page = [line for line in metrics.render(False).splitlines() if not line.startswith("#")]
    assert page == ["gpuops_slurm_up 0"]
