"""The installed package: the program, RDMA for programs, FTAM, and the records of the laboratory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kiban
import kiban.ftam
import kiban.lab
import kiban.verbs

SECONDS = 120


def test_the_program_and_its_manual_pages_are_in_the_environment() -> None:
    assert Path(kiban.program()) == Path(sysconfig.get_path("scripts"), "kiban")
    told = subprocess.run([kiban.program(), "--version"], capture_output=True, check=True, text=True)
    assert told.stdout == f"kiban {kiban.__version__}\n"
    assert Path(sys.prefix, "share/man/man1/kiban-verbs.1").is_file()


def test_programs_find_rdma_devices() -> None:
    for transport, layer in ("ib", "Ethernet"), ("roce", "Ethernet"), ("efe", "Ethernet"), ("iwarp", "Ethernet"):
        told = kiban.verbs.run(["ibv_devinfo"], transport=transport, capture_output=True, check=True, text=True)
        assert "hca_id:\tkiban" in told.stdout and layer in told.stdout, transport
    # The variables serve programs that are started by other means.
    variables = kiban.verbs.environment("iwarp")
    told = subprocess.run(["ibv_devinfo"], env=variables, capture_output=True, check=True, text=True)
    assert "transport:\t\t\tiWARP" in told.stdout
    assert {name: variables[name] for name in os.environ if name in variables and "LD_" not in name}


def ping(rdma) -> str:
    server = rdma.popen(["rping", "-s", "-a", rdma.address, "-p", str(free_port()), "-v", "-C", "3"])
    port = server.args[server.args.index("-p") + 1]
    for _ in range(SECONDS * 10):
        told = rdma.run(
            ["rping", "-c", "-a", rdma.address, "-p", port, "-v", "-C", "3"], capture_output=True, text=True, timeout=SECONDS
        )
        if told.returncode == 0:
            break
        assert server.poll() is None, "the server has ended"
    assert server.wait(SECONDS) == 0
    return told.stdout


def free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_the_fixture_runs_two_programs(rdma) -> None:
    assert rdma.transport is None
    assert "ping data: rdma-ping-2" in ping(rdma)


@pytest.mark.rdma(transport="roce")
def test_the_mark_selects_the_transport(rdma) -> None:
    assert rdma.environment["KIBAN_TRANSPORT"] == "roce"
    assert "ping data: rdma-ping-2" in ping(rdma)


def test_the_fixture_ends_programs_and_the_option_selects_the_transport(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        def test_one(rdma):
            process = rdma.popen(["sleep", "1000"])
            open("number", "w").write(str(process.pid))
            assert rdma.environment["KIBAN_TRANSPORT"] == "iwarp"
        """
    )
    pytester.runpytest("--rdma-transport", "iwarp").assert_outcomes(passed=1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(Path("number").read_text()), 0)
    pytester.runpytest("-o", "rdma_transport=tcp").assert_outcomes(errors=1)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[kiban.ftam.Filestore, Path]]:
    root, users = tmp_path / "root", tmp_path / "users.toml"
    root.mkdir()
    passwd = [kiban.program(), "ftam", "passwd", "--rights", "all", str(users), "ann"]
    subprocess.run(passwd, input="secret\n", text=True, check=True)
    words = [kiban.program(), "ftam", "serve", "--json", "--listen", "127.0.0.1:0", "--root", str(root), "--users", str(users)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as server:
        try:
            told = (json.loads(line)["fields"] for line in server.stderr)
            address = next(fields["address"] for fields in told if fields["message"] == "serving FTAM")
            yield kiban.ftam.Filestore(f"ftam://ann@{address}", password="secret"), root
        finally:
            server.terminate()


def test_files_are_listed_fetched_and_sent(served: tuple[kiban.ftam.Filestore, Path], tmp_path: Path) -> None:
    store, root = served
    contents = os.urandom(3_000_000)
    (root / "calls").mkdir()
    (root / "calls" / "one file").write_bytes(contents)
    assert [entry["name"] for entry in store.list("calls")] == ["one file"]
    assert store.stat("calls/one file")["bytes"] == len(contents)

    told: list[tuple[int, object]] = []
    done = store.get("calls/one file", tmp_path / "here", progress=lambda *numbers: told.append(numbers))
    assert (tmp_path / "here").read_bytes() == contents
    assert [one["bytes"] for one in done] == [len(contents)]
    # The peer is not asked for the size.
    assert told == sorted(told) and told[-1] == (len(contents), None)

    told.clear()
    store.put([tmp_path / "here"], "calls/", progress=lambda *numbers: told.append(numbers))
    assert told[-1] == (len(contents), len(contents))
    assert (root / "calls" / "here").read_bytes() == contents
    store.remove(["calls/here", "calls/one file"])
    assert store.list("calls") == []
    with pytest.raises(kiban.ftam.FtamError, match="3004"):
        store.get("calls/here", tmp_path)
    with pytest.raises(kiban.ftam.FtamError, match="password"):
        kiban.ftam.Filestore(store.url().replace("ann", "eve"), password="secret").list()


def test_a_run_is_a_frame(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    plan = tmp_path / "plan.toml"
    plan.write_text(
        'question = "wide-area-atm"\n[parameters]\nmessage_bytes = [1000, 4000]\nmilliseconds = 200\n', encoding="utf-8"
    )
    subprocess.run([kiban.program(), "lab", "run", str(plan), "--out", str(tmp_path / "run")], check=True)
    run = kiban.lab.read(tmp_path / "run")
    frame = run.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert sorted(frame["message_bytes"]) == [1000, 4000] and (frame["mbps"] > 0).all()
    polars = pytest.importorskip("polars")
    assert run.frame("polars").to_dicts() == run.rows()
    run.write_parquet(tmp_path / "run.parquet")
    assert polars.read_parquet(tmp_path / "run.parquet").to_dicts() == run.rows()
    summary = tmp_path / "summary.parquet"
    command = [kiban.program(), "lab", "summary", str(tmp_path / "run")]
    subprocess.run([*command, "--parquet", str(summary)], check=True)
    csv = subprocess.run([*command, "--csv"], check=True, stdout=subprocess.PIPE).stdout
    found = polars.read_parquet(summary)
    expected = polars.read_csv(csv, schema_overrides=found.schema)
    assert found.to_dicts() == expected.to_dicts() and found["median"].dtype == polars.Float64
    # A run that was killed leaves an incomplete line; anything else is no record.
    records = tmp_path / "run" / "records.jsonl"
    whole = records.read_text()
    records.write_text(whole + '{"key"')
    assert kiban.lab.read(tmp_path / "run").records == run.records
    records.write_text(whole + "{}\n")
    with pytest.raises(ValueError, match="line 3"):
        kiban.lab.read(tmp_path / "run")


def test_the_notebook_finds_the_collapse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notebook = json.loads(Path(__file__).with_name("lab.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    slow = names["slow"]
    assert len(names["frame"]) == 20 and sorted(set(slow["buffer_bytes"])) == [4096, 8192]
    assert len(names["axes"].get_lines()) == 4
    assert names["again"].to_dicts() == names["run"].rows()


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sysconfig, "get_path", lambda _: "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(FileNotFoundError, match="install kiban's wheel"):
        kiban.program()
    assert shutil.which("kiban") is None
