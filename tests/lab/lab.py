# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entry of `./run lab`: works with the standard library of any Python from 3.9 on."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.lab.cli import main  # noqa: E402

sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # in order with what builders print
sys.exit(main(sys.argv[1:]))
