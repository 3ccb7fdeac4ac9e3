"""The proof of the role cuda_toolkit, with compilers that are shell scripts."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils import _cuda_toolkit_proof as proof

NVCC = """#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release {release}, V13.0.88"; exit {version_rc}; fi
echo "$@" > {folder}/asked
{work}
"""
COMPILES = r"""while [ "$1" != -o ]; do shift; done; grep -q atomicAdd "$3" || exit 9
printf '#!/bin/sh\n%s\n' '{program}' > "$2"
chmod +x "$2" """


def run_command(argv: list[str], **_options: Any) -> tuple[int, str, str]:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def prove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Proves 13.0 with a compiler that is like that; nothing may be left of it."""
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "work"))

    def call(
        work: str = COMPILES,
        program: str = "echo ran on 2 GPUs",
        release: str = "13.0",
        version_rc: int = 0,
        driver: bool = True,
        run_kernel: bool = True,
    ) -> proof.Proof:
        nvcc = tmp_path / "nvcc"
        script = NVCC.replace("{work}", work.replace("{program}", program))
        nvcc.write_text(script.format(release=release, version_rc=version_rc, folder=tmp_path))
        nvcc.chmod(0o755)
        monkeypatch.setattr(proof, "DRIVER", str(tmp_path if driver else tmp_path / "none"))
        said = proof.prove(run_command, str(nvcc), "13.0", ["80", "90"], run_kernel)
        assert not list((tmp_path / "work").iterdir())
        return said

    return call


def test_a_kernel_is_compiled_for_all_architectures_and_run(prove: Any, tmp_path: Path) -> None:
    assert prove() == proof.Proof(compiled=True, ran="ran on 2 GPUs")
    asked = (tmp_path / "asked").read_text()
    assert "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90" in asked


def test_what_is_not_run_is_said(prove: Any) -> None:
    (reason,) = prove(run_kernel=False).not_run
    assert reason == "not run: cuda_toolkit_run_kernel is false"
    (reason,) = prove(driver=False).not_run
    assert "no NVIDIA driver is loaded here" in reason


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"version_rc": 1}, "nvcc --version failed: Cuda compilation tools"),
        ({"release": "12.4"}, "release 12.4, V13.0.88', expected release 13.0"),
        ({"work": "echo 'error: no g++' >&2; exit 1"}, "error: no g++\n"),
        ({"work": "exit 1"}, "nvcc could not compile for 80 90"),
        ({"program": "echo GPU 0 computed 3; exit 1"}, "GPU 0 computed 3"),
        ({"program": "exit 139"}, "the compiled kernel ended with 139"),
    ],
)
def test_what_is_wrong_is_said(prove: Any, how: dict[str, Any], words: str) -> None:
    assert words in prove(**how).wrong
