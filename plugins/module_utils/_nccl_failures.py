# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Sentences in a log of nccl-tests and its launcher that mean a failure."""

from __future__ import annotations

import re

# A sentence may have several meanings: CUDA errors surface as errors of NCCL.
FAILURES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), code)
    for pattern, code in (
        (r"NCCL failure|NCCL error|unhandled (system|cuda) error|\bnccl\w+Error\b|ncclInvalidUsage", "nccl_error"),
        (r"Test CUDA failure|unhandled cuda error|CUDA error", "cuda_error"),
        (r"Test failure|(NCCL|CUDA) failure|Test timeout", "crashed"),
        (r"Segmentation fault|Bus error|core dumped|on signal \d|Caught signal|signal: (Killed|Aborted)", "crashed"),
        (r"MPI_ABORT was invoked|oom[-_ ]kill|Out of memory", "crashed"),
        (
            r"^\s*usage: ?\S*_perf|Invalid number of GPUs|invalid size specified|invalid option|unrecognized option",
            "usage",
        ),
    )
)
# Also said of a run that ended well but found wrong data: a failure only where the summary is missing.
ENDINGS = re.compile(
    r"non-zero (exit )?(code|status)|exited? with (non-zero )?exit code|not enough slots|srun: error"
    r"|command not found|error while loading shared libraries|Permission denied|Host key verification failed"
    r"|lost communication|unable to (launch|reach|find)|could not (be found|access)|has unexpectedly"
    r"|not found or not exec",
    re.IGNORECASE,
)


def failures_in(text: str) -> list[str]:
    """Problem codes that a line means."""
    return [code for pattern, code in FAILURES if pattern.search(text)]
