"""What Prometheus knows of the lab, asked through its API; a fault of a simulated GPU on the way to an alert."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import yaml

PROJECT = Path(__file__).parents[2]
Sample = dict[str, Any]


def ask(ctl: Any, path: str) -> Any:
    return json.loads(ctl.check_output(f"curl -sf 'http://127.0.0.1:9090/api/v1/{path}'"))["data"]


def query(ctl: Any, expression: str) -> list[tuple[Sample, float]]:
    return [(r["metric"], float(r["value"][1])) for r in ask(ctl, f"query?query={quote(expression)}")["result"]]


def eventually(get: Callable[[], Any], good: Callable[[Any], bool], seconds: float = 180) -> Any:
    """What get returns as soon as it is good; the last one after that many seconds."""
    deadline = time.monotonic() + seconds
    while not good(value := get()) and time.monotonic() < deadline:
        time.sleep(1)
    return value


def fault(*words: str) -> None:
    name = os.environ.get("GPUOPS_LAB_NAME", "lab")
    subprocess.run(["./run", "lab", "fault", "--name", name, *words], cwd=PROJECT, check=True, capture_output=True)


def test_every_target_is_up_by_its_name(ctl: Any) -> None:
    targets = ask(ctl, "targets?state=active")["activeTargets"]
    health = {t["labels"]["instance"]: t["health"] for t in targets if t["labels"]["job"] == "node"}
    assert health == {"ctl": "up", "n1": "up", "n2": "up"}


def test_services_are_enabled_and_alive(ctl: Any, n1: Any) -> None:
    assert ctl.service("prometheus").is_enabled
    for unit in ("prometheus-node-exporter", "gpuops-gpu-metrics.timer"):
        assert n1.service(unit).is_running
        assert n1.service(unit).is_enabled


def test_gpus_of_a_node_with_a_driver(ctl: Any) -> None:
    assert query(ctl, 'gpuops_gpu_count{instance="n1"}')[0][1] == 4
    names = {m["name"] for m, _ in query(ctl, 'gpuops_gpu_info{instance="n1"}')}
    assert names == {"NVIDIA A100-SXM4-80GB"}
    temperatures = query(ctl, 'gpuops_gpu_temperature_celsius{instance="n1"}')
    assert sorted(m["gpu"] for m, _ in temperatures) == ["0", "1", "2", "3"]
    assert all(20 < value < 60 for _, value in temperatures)
    assert len(query(ctl, 'gpuops_gpu_utilization_ratio{instance="n1"}')) == 4


def test_a_node_without_a_driver_says_so(ctl: Any) -> None:
    states = {m["instance"]: m["state"] for m, _ in query(ctl, "gpuops_gpu_state")}
    assert states == {"n1": "ok", "n2": "no_driver"}
    assert query(ctl, 'gpuops_gpu_pci_count{instance="n2"}')[0][1] == 4


@pytest.fixture
def hook(ctl: Any) -> Iterator[Callable[[], str]]:
    """What whoever is told receives: the bodies of POST requests on the port of the scenario's receiver."""
    program = (
        "import http.server\n"
        "class Hook(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        body = self.rfile.read(int(self.headers['Content-Length']))\n"
        "        open('/run/told', 'ab').write(self.path.encode() + b' ' + body)\n"
        "        self.send_response(200)\n"
        "        self.end_headers()\n"
        "http.server.HTTPServer(('127.0.0.1', 8099), Hook).serve_forever()\n"
    )
    ctl.check_output(
        "printf %s > /run/hook.py && systemd-run --quiet --collect --unit=hook python3 /run/hook.py", program
    )
    yield lambda: str(ctl.check_output("cat /run/told 2>/dev/null || true"))
    ctl.check_output("systemctl stop hook && rm -f /run/told")


def test_a_sick_gpu_becomes_an_alert_and_somebody_is_told(ctl: Any, hook: Callable[[], str]) -> None:
    def alerts() -> list[str]:
        found = ask(ctl, "alerts")["alerts"]
        return [a["annotations"]["summary"] for a in found if a["labels"]["alertname"] == "GpuProblem"]

    fault("n1", "row_remap_failed=2")
    try:
        assert eventually(alerts, lambda a: a != []) == ["n1: row_remap_failed on GPU 2"]
        told = eventually(hook, lambda text: text != "")
        assert told.startswith("/s3cret-token ")
        assert "n1: row_remap_failed on GPU 2" in told
    finally:
        fault("n1", "--clear")
    assert eventually(alerts, lambda a: a == []) == []


def test_a_driver_that_does_not_answer_does_not_stop_the_timer(ctl: Any) -> None:
    def state() -> list[str]:
        return [m["state"] for m, _ in query(ctl, 'gpuops_gpu_state{instance="n1"}')]

    fault("n1", "not_loaded=1")
    try:
        assert eventually(state, lambda s: s == ["driver_not_loaded"]) == ["driver_not_loaded"]
    finally:
        fault("n1", "--clear")
    assert eventually(state, lambda s: s == ["ok"]) == ["ok"]


def test_a_controller_without_slurm_says_so(ctl: Any) -> None:
    assert [value for _, value in query(ctl, 'gpuops_slurm_up{instance="ctl"}')] == [0.0]


def test_what_the_health_check_found_becomes_a_metric(ctl: Any, n2: Any) -> None:
    """As the role node_health keeps it; it is not part of this scenario."""
    finding = {"code": "xid_79", "device": "GPU 3", "detail": "gone", "severity": "drain"}
    result = json.dumps({"time": time.time(), "findings": [finding]})
    n2.check_output(f"mkdir -p /run/gpuops; printf '%s' '{result}' > /run/gpuops/node_health.json")

    def found() -> list[str]:
        return [f"{m['instance']} {m['code']} {m['severity']}" for m, _ in query(ctl, "gpuops_node_health_finding")]

    try:
        assert eventually(found, lambda f: f != []) == ["n2 xid_79 drain"]
    finally:
        n2.check_output("rm /run/gpuops/node_health.json")


def test_where_alerts_go_is_for_the_daemon_alone(ctl: Any) -> None:
    file = ctl.file("/etc/prometheus/alertmanager.yml")
    assert (file.user, file.group, file.mode) == ("root", "prometheus", 0o640)
    assert ctl.socket("tcp://127.0.0.1:9093").is_listening
    assert not ctl.socket("tcp://0.0.0.0:9094").is_listening


def test_prometheus_listens_on_loopback_only(ctl: Any) -> None:
    assert ctl.socket("tcp://127.0.0.1:9090").is_listening
    assert not ctl.socket("tcp://0.0.0.0:9090").is_listening


def test_the_rules_pass_promtool(ctl: Any) -> None:
    assert "SUCCESS" in ctl.check_output("promtool check config /etc/prometheus/prometheus.yml")
    groups = {g["name"]: [r["health"] for r in g["rules"]] for g in ask(ctl, "rules")["groups"]}
    assert groups["gpuops"]
    assert set(groups["gpuops"]) == {"ok"}


def test_every_query_of_the_dashboard_is_understood(ctl: Any) -> None:
    dashboard = json.loads((PROJECT / "roles/monitoring/files/gpuops-dashboard.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    answers = {e: query(ctl, e.replace("$node", ".*")) for e in expressions}
    silent = {e for e, samples in answers.items() if not samples}
    # Nothing is sick here, no clock is held down, no node has an RDMA port, and no Slurm runs.
    assert all(any(word in e for word in ("problem", "throttle", "rdma", "slurm", "health")) for e in silent), silent
    assert len(answers) - len(silent) >= 10


# As in the field's package: a folder for what is provisioned, and a server that reads it when it starts.
GRAFANA = r"""
set -e
rm -rf /srv/grafana && mkdir -p /srv/grafana/deb/DEBIAN && cd /srv/grafana/deb
mkdir -p usr/lib/systemd/system usr/share/grafana
mkdir -p etc/grafana/provisioning/datasources etc/grafana/provisioning/dashboards
printf '%s\n' 'Package: grafana' 'Version: 11.2.0' 'Architecture: all' 'Maintainer: lab <lab@example.org>' \
  'Description: stand-in' > DEBIAN/control
cat > usr/lib/systemd/system/grafana-server.service <<'END'
[Service]
ExecStart=/usr/bin/python3 /usr/share/grafana/server.py
[Install]
WantedBy=multi-user.target
END
cat > usr/share/grafana/server.py <<'END'
import glob, http.server, pathlib
READ = "".join(pathlib.Path(path).read_text() for path in glob.glob("/etc/grafana/provisioning/*/*.yaml"))
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(READ.encode())
http.server.HTTPServer(("127.0.0.1", 3000), Handler).serve_forever()
END
dpkg-deb --build . /srv/grafana/grafana.deb >/dev/null
cd /srv/grafana && dpkg-scanpackages . > Packages 2>/dev/null
echo 'deb [trusted=yes] file:/srv/grafana ./' > /etc/apt/sources.list.d/grafana.list
"""


def converge(*options: str, limit: str = "ctl") -> tuple[int, str]:
    command = ["ansible-playbook", "-i", "inventories/lab", "molecule/monitoring/converge.yml", "--limit", limit]
    done = subprocess.run(
        [*command, *options],
        cwd=PROJECT,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(PROJECT / "ansible.cfg"),
            "ANSIBLE_FORCE_COLOR": "0",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def recap(out: str, host: str) -> dict[str, int]:
    line = next(line for line in out.splitlines() if line.startswith(f"{host} ") and "ok=" in line)
    return {key: int(value) for key, value in (word.split("=") for word in line.split(":", 1)[1].split())}


def with_grafana() -> tuple[int, str]:
    return converge("-e", json.dumps({"monitoring_grafana": True}))


def test_a_run_without_anything_to_do_is_short() -> None:
    status, out = converge(limit="ctl:n1:n2")
    assert status == 0, out
    for host in ("ctl", "n1", "n2"):
        counts = recap(out, host)
        assert counts["changed"] == 0, out
        assert counts["ok"] + counts["skipped"] == 7, out


def test_what_others_changed_is_mended_in_the_same_run(ctl: Any, n1: Any) -> None:
    """Check mode says so first, and changes nothing."""
    n1.check_output("echo >> /etc/systemd/system/gpuops-gpu-metrics.timer")
    n1.check_output("systemctl disable --quiet prometheus-node-exporter; systemctl stop gpuops-gpu-metrics.timer")
    n1.check_output("chmod 0700 /usr/local/lib/gpuops")
    ctl.check_output("sed -i 's/9090/9091/' /etc/default/prometheus; rm /etc/prometheus/gpuops.rules.yml")
    ctl.check_output("chmod 0644 /etc/prometheus/alertmanager.yml")
    broken = ctl.check_output("cat /etc/default/prometheus")
    status, out = converge("--check", limit="ctl:n1")
    assert status == 0, out
    assert recap(out, "n1")["changed"] > 0, out
    assert recap(out, "ctl")["changed"] > 0, out
    assert ctl.check_output("cat /etc/default/prometheus") == broken
    assert not n1.service("gpuops-gpu-metrics.timer").is_running
    status, out = converge(limit="ctl:n1")
    assert status == 0, out
    assert recap(out, "n1")["changed"] > 0 and recap(out, "ctl")["changed"] > 0
    for unit in ("prometheus-node-exporter", "gpuops-gpu-metrics.timer"):
        assert n1.service(unit).is_running and n1.service(unit).is_enabled
    assert n1.check_output("systemctl show --value -p NeedDaemonReload gpuops-gpu-metrics.timer") == "no"
    assert n1.file("/usr/local/lib/gpuops").mode == 0o755
    assert ctl.socket("tcp://127.0.0.1:9090").is_listening
    assert ctl.file("/etc/prometheus/alertmanager.yml").mode == 0o640
    status, out = converge(limit="ctl:n1")
    assert status == 0 and recap(out, "n1")["changed"] == recap(out, "ctl")["changed"] == 0, out


def test_an_exporter_that_lacks_what_it_should_have_fails_the_run(n1: Any) -> None:
    """The textfile of the GPUs gone, and nobody who writes it anew: verify waits, then says so."""
    folder = "/run/systemd/system/gpuops-gpu-metrics.service.d"
    n1.check_output("mkdir -p %s; printf '[Service]\nExecStart=\nExecStart=/bin/true\n' > %s/x.conf", folder, folder)
    n1.check_output("systemctl daemon-reload; rm /var/lib/prometheus/node-exporter/gpuops.prom")
    try:
        status, out = converge(limit="n1")
        assert status != 0
        assert "the exporter on port 9100 has no gpuops_gpu_state" in out, out
    finally:
        n1.check_output("rm -r %s; systemctl daemon-reload", folder)
        n1.check_output("systemctl start gpuops-gpu-metrics.service")


def test_grafana_is_given_its_source_and_dashboard(ctl: Any) -> None:
    status, out = with_grafana()
    assert status != 0
    assert "ctl: apt knows no package grafana, which distributions do not have (monitoring_grafana is true)" in out
    assert not ctl.file("/etc/grafana/provisioning").exists
    ctl.check_output("command -v dpkg-scanpackages || apt-get -qq install -y --no-install-recommends dpkg-dev")
    ctl.check_output(GRAFANA)
    status, out = with_grafana()
    assert status == 0, out
    assert ctl.service("grafana-server").is_enabled
    read = list(yaml.safe_load_all(ctl.check_output("curl -sf http://127.0.0.1:3000 | sed 's/^#.*/---/'")))
    source, provider = sorted(read, key=lambda given: "providers" in given)
    assert source["datasources"][0]["url"] == "http://127.0.0.1:9090"
    folder = provider["providers"][0]["options"]["path"]
    assert json.loads(ctl.check_output("cat %s/gpuops-dashboard.json", folder))["uid"] == "gpuops-cluster"
    status, out = with_grafana()
    assert status == 0
    assert "changed=0 " in out, out
