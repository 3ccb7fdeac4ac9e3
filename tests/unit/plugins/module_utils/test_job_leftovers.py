"""What a job leaves behind: its own processes end, nobody else's, and what cannot end is told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _job_leftovers as leftovers
from ansible_collections.gpuops.cluster.plugins.module_utils import _node_program

JOB = str(4_242_000_000 + os.getpid())  # whoever else runs this test here has other jobs


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """A process of the job, the shell of its salloc, a process of another job, one of none."""
    node = {"SLURMD_NODENAME": "n1"}
    processes = []
    for variables in ({"SLURM_JOB_ID": JOB, **node}, {"SLURM_JOB_ID": JOB}, {"SLURM_JOB_ID": JOB + "1", **node}, {}):
        own = {**os.environ, **variables}
        processes.append(subprocess.Popen(["sleep", "300"], env=own, start_new_session=True))
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_only_the_job_s_own_processes_end(started: list[subprocess.Popen[bytes]]) -> None:
    assert leftovers.clean(JOB, "0", {"epilog_wait_s": 0}) != [] or started[0].wait(20) != 0
    started[0].wait(20)
    assert leftovers.clean(JOB, "0", {"epilog_wait_s": 10}) == []
    assert [process.poll() for process in started] == [-9, None, None, None]


def test_the_epilog_does_not_end_itself(tmp_path: Path) -> None:
    """Slurm gives it the job's number, too. Run as on a node: as one file, below a shell."""
    source = f"from {_node_program.PACKAGE} import _job_leftovers\nprint(_job_leftovers.of_job('{JOB}'))\n"
    program = tmp_path / "program"
    program.write_bytes(_node_program.archive(source, Path(leftovers.__file__).parent))
    call = ["sh", "-c", f"{sys.executable} {program}; true"]
    done = subprocess.run(
        call,
        env={**os.environ, "SLURM_JOB_ID": JOB, "SLURMD_NODENAME": "n1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]", done.stderr


def test_a_process_that_cannot_end_is_told_with_its_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "end", lambda job, seconds: [111, 222])
    tool = tmp_path / "nvidia-smi"
    tool.write_text('#!/bin/sh\n[ "$2" = 3 ] && printf "222\\n999\\n"\nexit 0\n')
    tool.chmod(0o755)
    (finding,) = leftovers.clean(JOB, "1,3", {"nvidia_smi": str(tool)})
    assert (finding.code, finding.device) == ("gpu_busy_after_job", "GPU 3")
    assert "process 222 of job" in finding.detail
    (finding,) = leftovers.clean(JOB, "", {"nvidia_smi": str(tool)})
    assert finding.code == "job_left_processes"
