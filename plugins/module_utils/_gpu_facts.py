# Copyright (c) The gpuops.cluster contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gathers the facts of a host's GPUs: asks PCI, the kernel and nvidia-smi, and puts their answers together."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from . import _gpu_health, _nvlink
from ._command import Answer, run
from ._cuda_toolkits import cuda_toolkits
from ._nvidia_driver import loaded_driver
from ._nvidia_smi_device import Device, describe
from ._nvidia_smi_errors import NO_DEVICES, Verdict, exit_sentence, judge
from ._nvidia_smi_list import parse_list
from ._nvidia_smi_topology import Topology, parse_topology
from ._nvidia_smi_values import Values
from ._nvidia_smi_xml import Report, read_report
from ._pci import PciFunction, find_address, nvidia_functions, slot

if TYPE_CHECKING:
    from collections.abc import Callable

    Ask = Callable[..., Answer]

_VERSION = re.compile(r"\d+(\.\d+)+")


@dataclass
class Sources:
    """All answers, before they are judged."""

    pci: list[PciFunction]
    switches: int
    loaded: str | None = None
    flavour: str | None = None
    slots: dict[str, int] = field(default_factory=dict)  # PCI address -> lanes of the slot
    answered: Answer | None = None  # null: there is no nvidia-smi
    report: Report = field(default_factory=Report)
    devices: list[Device] = field(default_factory=list)
    topology: Topology | None = None
    late: str = ""  # the call after the report that gave no answer in time

    @property
    def announced(self) -> int:
        return Values(self.report.root).integer("attached_gpus") or 0


def _ask(sources: Sources, ask: Ask) -> None:
    """Ask nvidia-smi: the report first, and what else is worth asking only when that had an answer."""
    answer = ask("-q", "-x")
    sources.answered = answer
    sources.report = read_report(answer.stdout)
    sources.devices = [describe(index, node) for index, node in enumerate(sources.report.gpus)]
    if answer.timed_out or not sources.devices:
        return
    matrix = ask("topo", "-m")
    sources.topology = parse_topology(matrix.text())
    sources.late = matrix.failure if matrix.timed_out else ""
    if not sources.late and any(device.facts["mig"]["devices"] for device in sources.devices):
        names = ask("-L")
        _name_mig_devices(sources.devices, names.text())
        sources.late = names.failure if names.timed_out else ""


def _name_mig_devices(devices: list[Device], listing: str) -> None:
    for index, names in parse_list(listing).items():
        instances = devices[index].facts["mig"]["devices"] if index < len(devices) else []
        if len(instances) == len(names):
            for instance, name in zip(instances, names):
                instance.update(profile=name.profile, uuid=name.uuid)


def _place(sources: Sources) -> None:
    """NUMA node and CPUs of each GPU: from sysfs, for nvidia-smi cuts long lists; else from the matrix."""
    by_address = {function.address: function for function in sources.pci}
    matrix = sources.topology
    for index, device in enumerate(sources.devices):
        function = by_address.get(device.facts["pci"] or "")
        numa, cpus = (function.numa_node, function.cpus) if function else (None, None)
        if matrix is not None and len(matrix.gpus) == len(sources.devices):
            numa = matrix.numa[index] if numa is None else numa
            cpus = matrix.cpus[index] if cpus is None else cpus
        device.facts.update(numa_node=numa, cpus=cpus)


def _boards(sources: Sources, count: int) -> list[_nvlink.Board]:
    """What the NVLink rules know about each GPU of the matrix; nothing where matrix and report disagree."""
    if len(sources.devices) != count:
        return [_nvlink.Board("", None, False)] * count
    facts = [device.facts for device in sources.devices]
    return [_nvlink.Board(fact["name"] or "", fact["architecture"], bool(fact["mig"]["enabled"])) for fact in facts]


def _topology(sources: Sources) -> dict[str, Any] | None:
    matrix = sources.topology
    if matrix is None:
        return None
    boards = _boards(sources, len(matrix.gpus))
    links = _nvlink.links_per_gpu(matrix.gpus, boards)
    nvlink = {"links_per_gpu": links, "generation": _nvlink.generation(boards)} if links else None
    return {**matrix.fact(), "nvlink": nvlink}


def _host_problems(sources: Sources, verdict: Verdict) -> list[dict[str, Any]]:
    """Problems of the host as a whole, and those that a sentence tells about a GPU."""
    problems = []
    index_of = {device.facts["pci"]: device.facts["index"] for device in sources.devices if device.facts["pci"]}
    told = {remark.address for remark in verdict.remarks}
    for function in sources.pci:
        if function.lost and function.address not in told:
            detail = f"{function.address} has fallen off the bus: its configuration space reads as ones"
            problems.append(_gpu_health.problem("gpu_lost", index_of.get(function.address), detail))
    for remark in verdict.remarks:
        problems.append(_gpu_health.problem(remark.code, index_of.get(remark.address), remark.detail))
    if sources.report.damage:
        problems.append(_gpu_health.problem("report_truncated", None, sources.report.damage))
    elif sources.report.found and sources.answered and sources.answered.failure:
        problems.append(_gpu_health.problem("report_truncated", None, sources.answered.failure))
    count = len(sources.devices)
    if len(sources.pci) > count:
        absent = [function.address for function in sources.pci if function.address not in index_of]
        detail = (
            f"PCI shows {len(sources.pci)} GPUs, the driver answers for {count}; without an answer: {', '.join(absent)}"
        )
        problems.append(_gpu_health.problem("gpu_missing", None, detail))
    elif sources.announced > count:
        detail = f"the report announces {sources.announced} GPUs and describes {count}"
        problems.append(_gpu_health.problem("gpu_missing", None, detail))
    return problems


def _device_problems(sources: Sources) -> list[dict[str, Any]]:
    devices = sources.devices
    found = [
        (index, *finding) for index, device in enumerate(devices) for finding in _gpu_health.device_problems(device)
    ]
    narrow = _gpu_health.narrow_links(devices, sources.slots, _nvlink.on_baseboard)
    found += [(index, "pcie_degraded", detail) for index, detail in narrow.items()]
    matrix = sources.topology
    if matrix is not None and matrix.shows_nvlink:
        lost = _nvlink.inactive(matrix.gpus, _boards(sources, len(matrix.gpus)))
        found += [(index, "nvlink_inactive", detail) for index, detail in lost.items()]
    return [_gpu_health.problem(code, index, detail) for index, code, detail in found]


def _distinct(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each problem of a GPU once, by its first evidence; an exit code says nothing new when its GPU is known."""
    first: dict[tuple[str, int | None, str], dict[str, Any]] = {}
    on_gpus = {problem["code"] for problem in problems if problem["device"] is not None}
    for problem in problems:
        code, device = problem["code"], problem["device"]
        if device is not None or code not in on_gpus or find_address(problem["detail"]):
            first.setdefault((code, device, problem["detail"] if device is None else ""), problem)
    return list(first.values())


def _without_gpus(sources: Sources, answer: Answer, verdict: Verdict) -> tuple[str, str]:
    """State and reason where nvidia-smi names neither GPUs nor a problem."""
    if sources.report.found or verdict.state == NO_DEVICES:
        return "no_gpu", "the driver reports no GPU, and PCI shows none"
    said = f", but: {verdict.sentence}" if verdict.sentence else ""
    return "no_answer", answer.failure or f"{exit_sentence(answer.rc)}, without a report{said}"


def _state(sources: Sources, verdict: Verdict, problems: list[dict[str, Any]]) -> tuple[str, str]:
    """State and reason."""
    answer = sources.answered
    if answer is None:
        return ("no_driver", "there is no nvidia-smi") if sources.pci else ("no_gpu", "there is no NVIDIA GPU")
    if answer.timed_out or sources.late:
        return "no_answer", answer.failure or sources.late
    if not sources.devices and verdict.state not in {None, NO_DEVICES}:
        return str(verdict.state), verdict.sentence
    if problems:
        first = problems[0]
        where = "" if first["device"] is None else f"GPU {first['device']}: "
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        return "degraded", f"{where}{first['code']}: {first['detail']}{more}"
    if sources.devices:
        return "ok", ""
    return _without_gpus(sources, answer, verdict)


def _driver(sources: Sources, verdict: Verdict) -> dict[str, Any]:
    root = sources.report.root

    def version(*names: str) -> str | None:
        """The first that begins with a version: driver 610 adds to the old names that they are deprecated."""
        found = (_VERSION.match(Values(root).text(name) or "") for name in names)
        return next((match.group() for match in found if match), None)

    return {
        "version": version("driver_version", "kmd_version") or verdict.library_version,
        "loaded": sources.loaded,
        "cuda": version("cuda_version", "cuda_umd_version"),
        "flavour": sources.flavour,
    }


def _answers(sources: Sources, verdict: Verdict) -> bool:
    """Whether the driver answered, so that what is missing in its answer is a problem."""
    if sources.answered is None or sources.answered.timed_out:
        return bool(sources.devices)
    return bool(sources.devices) or sources.report.found or verdict.state == NO_DEVICES or bool(verdict.remarks)


def caller(nvidia_smi: str, timeout: float) -> Ask:
    """What asks the tool at this path."""
    return lambda *arguments: run([nvidia_smi, *arguments], timeout)


def gather(ask: Ask | None, sysfs_root: str = "/sys", proc_root: str = "/proc") -> dict[str, Any]:
    """Facts in the form of the contract. ``ask`` calls nvidia-smi with arguments; null where there is none."""
    pci, switches = nvidia_functions(sysfs_root)
    sources = Sources(pci, switches)
    if ask is not None:
        _ask(sources, ask)
    # Last, for nvidia-smi loads the module where nobody had used it since the boot.
    sources.loaded, sources.flavour = loaded_driver(proc_root, sysfs_root)
    answer = sources.answered or Answer()
    verdict = judge("\n".join((sources.report.remarks, answer.stderr.decode("utf-8", "replace"))), answer.rc)
    offers = {function.address: slot(sysfs_root, function.address)[1] for function in pci}
    sources.slots = {address: width for address, width in offers.items() if width}
    _place(sources)
    problems = _device_problems(sources)
    if _answers(sources, verdict):
        problems = _distinct(_host_problems(sources, verdict) + problems)
    for device in sources.devices:
        mine = [problem["code"] for problem in problems if problem["device"] == device.facts["index"]]
        device.facts["problems"] = list(dict.fromkeys(mine))
    state, reason = _state(sources, verdict, problems)
    return {
        "state": state,
        "reason": reason,
        "pci_count": len(pci),
        "pci_devices": [function.fact() for function in pci],
        "nvswitch_count": switches,
        "count": len(sources.devices),
        "driver": _driver(sources, verdict),
        "mixed": len({device.name for device in sources.devices if device.name}) > 1,
        "devices": [device.facts for device in sources.devices],
        "topology": _topology(sources),
        "problems": problems,
        "cuda_toolkits": cuda_toolkits(),
    }
