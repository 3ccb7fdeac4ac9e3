# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CUDA toolkits by their version files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.gpuops.cluster.plugins.module_utils._cuda_toolkits import cuda_toolkits

if TYPE_CHECKING:
    from pathlib import Path

JSON = '{"cuda": {"name": "CUDA SDK", "version": "%s"}, "cuda_nvcc": {"version": "1.2.3"}}'


def toolkit(local: Path, name: str, version: str, old: bool = False) -> Path:
    folder = local / name
    folder.mkdir(parents=True)
    if old:
        (folder / "version.txt").write_text(f"CUDA Version {version}\n")
    else:
        (folder / "version.json").write_text(JSON % version)
    return folder


def found(local: Path, debian: Path | None = None) -> list[tuple[Any, ...]]:
    toolkits = cuda_toolkits(str(local), str(debian or local / "none"))
    return [(one["version"], str(one["path"]).rsplit("/", maxsplit=1)[-1], one["default"]) for one in toolkits]


def test_several_with_the_links_of_alternatives(tmp_path: Path) -> None:
    toolkit(tmp_path, "cuda-10.2", "10.2.89", old=True)
    toolkit(tmp_path, "cuda-12.4", "12.4.1")
    (tmp_path / "alternatives").symlink_to(toolkit(tmp_path, "cuda-9.0", "9.0.176", old=True).parent / "cuda-12.4")
    (tmp_path / "cuda").symlink_to(tmp_path / "alternatives")
    (tmp_path / "cuda-12").symlink_to(tmp_path / "cuda-12.4")
    assert found(tmp_path) == [("9.0", "cuda-9.0", False), ("10.2", "cuda-10.2", False), ("12.4", "cuda-12.4", True)]


def test_leftovers_are_no_toolkits(tmp_path: Path) -> None:
    (tmp_path / "cuda-11.8/lib64").mkdir(parents=True)
    assert found(tmp_path) == []


@pytest.mark.parametrize("content", ["", "no json", "[]", '{"cuda": 12}', '{"cuda": {"version": null}}'])
def test_a_broken_version_file(content: str, tmp_path: Path) -> None:
    (tmp_path / "cuda-12.4").mkdir()
    (tmp_path / "cuda-12.4/version.json").write_text(content)
    assert found(tmp_path) == []


def test_a_folder_in_place_of_the_link(tmp_path: Path) -> None:
    toolkit(tmp_path, "cuda", "11.8.0")
    assert found(tmp_path) == [("11.8", "cuda", True)]


def test_the_package_of_the_distribution(tmp_path: Path) -> None:
    debian = toolkit(tmp_path, "lib-cuda", "11.8.89", old=True)
    assert found(tmp_path / "local", debian) == [("11.8", "lib-cuda", True)]
    (tmp_path / "local").mkdir()
    (tmp_path / "local/cuda").symlink_to(toolkit(tmp_path / "local", "cuda-12.4", "12.4.1"))
    assert found(tmp_path / "local", debian) == [("11.8", "lib-cuda", False), ("12.4", "cuda-12.4", True)]
