"""Lock files: what they hold, what makes them unusable, what identifies them."""

from __future__ import annotations

from ansible_collections.gpuops.cluster.plugins.module_utils import _python_lock as lock

GOOD = """\
# made by uv
torch==2.13.0+cpu \\
    --hash=sha256:aa \\
    --hash=sha256:bb
typing_extensions==4.16.0 ; python_version < "3.13" --hash=sha256:cc
    # via torch
"""


def test_continuations_comments_and_markers_are_read() -> None:
    assert lock.requirements(GOOD) == {"torch": "2.13.0+cpu", "typing-extensions": "4.16.0"}
    assert lock.problems(GOOD) == []


def test_the_digest_ignores_comments_and_order_but_not_versions() -> None:
    assert lock.digest(GOOD) == lock.digest("\n".join(reversed(lock.logical_lines(GOOD))))
    assert lock.digest(GOOD) != lock.digest(GOOD.replace("2.13.0", "2.13.1"))


def test_what_is_not_exact_is_refused() -> None:
    assert lock.problems("torch>=2\nnumpy==2.4.6\n") == [
        "'torch>=2' has no exact version",
        "'numpy==2.4.6' has no --hash",
    ]
    assert lock.problems("# nothing\n") == ["holds no requirement"]


def test_two_cuda_majors_in_one_environment_are_refused() -> None:
    text = "nvidia-nccl-cu12==2.1 --hash=sha256:a\nnvidia-cublas-cu13==13 --hash=sha256:b\n"
    (problem,) = lock.problems(text)
    assert "CUDA 12: nvidia-nccl-cu12; CUDA 13: nvidia-cublas-cu13" in problem


def test_only_takes_the_lines_of_one_project() -> None:
    text = "pip==26.3 --hash=sha256:a\npip-tools==7 --hash=sha256:b\n"
    assert lock.only(text, "pip") == "pip==26.3 --hash=sha256:a\n"
    assert lock.only(text, "wheel") == ""
