"""The wheels as a board and a controller install them: their dependencies, and that they work."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.ports import free_port
from tests.system.daemons import clean_environ, unreachable_kubeconfig
from tests.web.vendoring import differences

pytestmark = [pytest.mark.package, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
EXAMPLES = REPOSITORY / "docs" / "examples"
# House rules: these five and what they need; a board has room for nothing else.
AGENTS = {"leadline-agent", "leadline-wire", "paho-mqtt", "psutil", "ping3", "iperf3"}
OF_THE_WIRE = {"protobuf"}
LISTING = (
    "import importlib.metadata as m, json;"
    "print(json.dumps(sorted(d.metadata['Name'].lower().replace('_', '-')"
    " for d in m.distributions())))"
)


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {k: v for k, v in clean_environ().items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )


@dataclass(frozen=True)
class Environment:
    """A virtual environment with one of our distributions in it, of this version, and a
    folder to work in."""

    folder: Path
    work: Path
    version: str

    def __call__(self, program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, far from the checkout."""
        return run(self.folder / "bin" / program, *arguments, cwd=self.work)

    def distributions(self) -> set[str]:
        """All that is installed in it."""
        return set(json.loads(self("python", "-c", LISTING).stdout))

    def home_of(self, package: str) -> Path:
        """Where a package is imported from."""
        code = f"import {package}; print({package}.__path__[0])"
        return Path(self("python", "-c", code).stdout.strip())


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    built = run(UV, "build", "--all-packages", "--wheel", "--out-dir", folder, cwd=REPOSITORY)
    assert built.returncode == 0, built.stderr
    return folder


def installed(wheels: Path, folder: Path, versions: str, name: str) -> Environment:
    """A new environment with this part of the suite and, from the index, what it needs: the
    "locked" versions, or the "lowest" ones that it says it works with."""
    made = run(UV, "venv", "--python", sys.executable, folder / "venv", cwd=wheels)
    assert made.returncode == 0, made.stderr
    files = [next(wheels.glob(f"leadline_{each}-*.whl")) for each in (name, "wire")]
    what: list[str | Path] = ["--constraint", REPOSITORY / "requirements.lock", *files]
    if versions == "lowest":
        # Of folders, and not of wheels, uv takes what they need as direct.
        what = ["--no-sources", "--resolution", "lowest-direct"]
        what += [REPOSITORY / name, REPOSITORY / "proto"]
    python = folder / "venv" / "bin" / "python"
    done = run(UV, "pip", "install", "--python", python, *what, cwd=wheels)
    assert done.returncode == 0, done.stderr
    (folder / "work").mkdir()
    return Environment(folder / "venv", folder / "work", files[0].name.split("-")[1])


@pytest.fixture(scope="module", params=["locked", "lowest"])
def board(
    request: pytest.FixtureRequest, wheels: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    return installed(wheels, tmp_path_factory.mktemp("board"), request.param, "agent")


@pytest.fixture(scope="module", params=["locked", "lowest"])
def server(
    request: pytest.FixtureRequest, wheels: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    return installed(wheels, tmp_path_factory.mktemp("server"), request.param, "controller")


def test_each_wheel_holds_the_text_of_its_licence(wheels: Path) -> None:
    licence = (REPOSITORY / "LICENSE").read_bytes()
    built = sorted(wheels.glob("*.whl"))
    assert {wheel.name.split("-")[0] for wheel in built} == {
        f"leadline_{each}"
        for each in ("agent", "controller", "experiments", "flows", "lab", "wire")
    }
    for wheel in built:
        folder = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
        with zipfile.ZipFile(wheel) as archive:
            assert archive.read(f"{folder}/licenses/LICENSE") == licence, wheel.name


def test_a_board_gets_nothing_but_the_agent_and_what_it_needs(board: Environment) -> None:
    found = board.distributions()
    heavy = {"grpcio", "numpy", "leadline-controller"}
    assert not {name for name in found if name in heavy or "kube" in name}
    assert found == AGENTS | OF_THE_WIRE


def test_the_agent_works_alone(board: Environment) -> None:
    assert board.home_of("leadline_agent").is_relative_to(board.folder)
    assert board.home_of("leadline_wire").is_relative_to(board.folder)
    version = board("leadline-agent", "--version")
    assert (version.returncode, version.stdout) == (0, f"leadline-agent {board.version}\n")
    settings = board.work / "agent.toml"
    settings.write_text('node = "bare"\n')
    once = board("leadline-agent", "once", "--config", settings)
    assert (once.returncode, once.stderr) == (0, "")
    report = json.loads(once.stdout)
    assert (report["node"], report["cluster"]) == ("bare", "default")
    assert 0 <= report["cpu"]["busy_percent"] <= 100
    assert report["cpu"]["load_1m"] >= 0
    assert 0 < report["memory"]["available_bytes"] <= report["memory"]["total_bytes"]
    ran = {run["name"]: run["outcome"] for run in report["collectors"]}
    assert {"cpu", "memory", "disk", "network", "temperature"} <= set(ran)
    assert "failed" not in ran.values()


def test_the_agent_runs_without_a_broker_and_ends_with_0(board: Environment) -> None:
    settings = board.work / "run.toml"
    settings.write_text(f'state_dir = "{board.work / "state"}"\nbroker.port = 1\ninterval_s = 1\n')
    program = board.folder / "bin" / "leadline-agent"
    with subprocess.Popen(
        [str(program), "run", "--config", str(settings)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=board.work,
        env=clean_environ(),
    ) as agent:
        try:
            assert agent.stderr is not None
            lines = iter(agent.stderr.readline, "")
            refused = next(line for line in lines if "broker localhost:1" in line)
            assert "trying again" in refused
        finally:
            agent.terminate()
            code = agent.wait(90)
    assert code == 0


def test_a_server_gets_no_agent_and_no_part_of_the_demo(server: Environment) -> None:
    found = server.distributions()
    assert {"leadline-controller", "leadline-wire", "grpcio", "numpy"} <= found
    assert not found & {"leadline-agent", "iotcore", "ping3", "iperf3", "psutil"}


def test_the_controller_starts_and_ends_with_0(server: Environment) -> None:
    kubeconfig = unreachable_kubeconfig(server.work, Authority(server.work).ca_file)
    settings = server.work / "controller.toml"
    settings.write_text(
        f'broker.port = 1\nkubernetes.kubeconfig = "{kubeconfig}"\n'
        f'decisions.path = "{server.work / "decisions.db"}"\n'
        f'grpc.address = "127.0.0.1:{free_port()}"\n'
    )
    with subprocess.Popen(
        [str(server.folder / "bin" / "leadline-controller"), "run", "--config", str(settings)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=server.work,
        env=clean_environ(),
    ) as controller:
        try:
            assert controller.stderr is not None
            assert any("can't be reached" in line for line in controller.stderr)
        finally:
            controller.terminate()
            code = controller.wait(90)
    assert code == 0


def test_leadline_score_works_without_the_demo(server: Environment) -> None:
    assert server.home_of("leadline_controller").is_relative_to(server.folder)
    snapshot = EXAMPLES / "netsched.yaml"
    scored = server(
        "leadline", "score", "--snapshot", snapshot, "--strategy", "netsched", "-o", "json"
    )
    assert (scored.returncode, scored.stderr) == (0, "")
    answer = json.loads(scored.stdout)
    assert answer["strategy"] == "netsched"
    assert answer["decisions"]
    assert all(decision["node"] for decision in answer["decisions"])
    version = server("leadline-controller", "--version")
    assert (version.returncode, version.stdout) == (0, f"leadline-controller {server.version}\n")


def test_without_the_demo_the_lab_says_what_to_install(server: Environment) -> None:
    refused = server("leadline", "lab", "run", "--local")
    assert refused.returncode == 1
    assert refused.stderr.endswith("pip install 'leadline-controller[demo]'\n")
    assert "Traceback" not in refused.stderr


def test_without_the_extra_experiments_say_what_to_install(server: Environment) -> None:
    assert not server.distributions() & {"matplotlib", "simpy", "highspy"}
    refused = server("leadline", "experiment", "netsched")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.endswith("pip install 'leadline-controller[experiments]'\n")
    assert refused.stderr.count("\n") == 1


def test_the_maps_page_is_in_the_wheel(server: Environment) -> None:
    page = server.home_of("leadline_controller") / "map" / "page"
    assert (page / "index.html").is_file()
    assert differences(page / "vendor") == []
