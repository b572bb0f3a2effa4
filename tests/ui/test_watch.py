"""`fedqhd watch` in a real browser, against a run that is going and one that has ended; on loopback alone."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest

from conftest import tiny
from fedqhd.core.errors import FedQHDError
from fedqhd.deploy.settings import RUN_NAME
from fedqhd.runs import checkpoint
from fedqhd.runs.run import train
from fedqhd.ui.watch import HOST, Watched, handler, lines_after, serve
from processes import FEDQHD, end, fedqhd, read_until, start
from worlds import CORRIDOR

PATIENCE = 120_000
"""Milliseconds: the machine may be busy."""
SETTINGS = {"env": "CartPole-v1", "setting": "heterogeneous", "clients": 3, "episodes": 8, "round_episodes": 2}


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A run as it is between its third and its fourth round, and how to let it go on."""
    folder = tmp_path_factory.mktemp("watch") / "run"
    config = tiny(folder, attack="noise", liars=0.34, **SETTINGS)
    real = checkpoint.save

    def stop(folder, done, *rest):
        real(folder, done, *rest)
        if done.rounds_done == 3:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", stop)
        with pytest.raises(KeyboardInterrupt):
            train(config)
    return folder, lambda: train(config, resume=True)


@contextmanager
def serving(folder):
    server = ThreadingHTTPServer((HOST, 0), handler(Watched(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def trained_by_another(folder):
    """Another process holds the run as one that trains it does, and is killed in the end."""
    hold = f"from pathlib import Path; from fedqhd.core.alive import training\nwith training(Path({str(folder)!r})): "
    process = start(sys.executable, "-c", hold + "print('holding', flush=True); input()", stdin=subprocess.PIPE)
    read_until(process, "holding")
    try:
        yield
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def get(port, path, host=None, **headers):
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    connection.request("GET", path, headers={**headers, **({"Host": host} if host else {})})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_the_page_follows_a_run_to_its_end(cut, browser):
    """One page, opened while the run stands after three of four rounds, and left open while it goes on."""
    folder, go_on = cut
    with serving(folder) as port:
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.set_default_timeout(PATIENCE)
        wrong, asked = [], []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
        page.on("request", lambda r: asked.append(r.url))
        page.goto(f"http://{HOST}:{port}/")
        page.wait_for_function(
            "() => document.getElementById('state').textContent.startsWith('stopped after round 3 of 4')"
        )
        assert page.inner_text("#state").endswith(f"resume with: fedqhd train --resume --out {folder}")
        with trained_by_another(folder):
            page.wait_for_function(
                "() => document.getElementById('state').textContent === 'running: round 3 of 4 is done'"
            )
        # That process was killed.
        page.wait_for_function("() => document.getElementById('state').className === 'stopped'")
        assert page.title().startswith("CartPole-v1")
        assert page.inner_text("h1") == "CartPole-v1: fedqhd, heterogeneous"
        page.wait_for_selector("#returns canvas")
        names = ("returns", "epsilon", "seconds", "apart", "replies")
        lines = {name: page.locator(f"#{name} .u-series.line").count() for name in names}
        assert lines == {"returns": 3, "epsilon": 1, "seconds": 1, "apart": 3, "replies": 3}
        assert drawn(page, "seconds")[0] == [1, 2, 3]
        assert ticks(page, "seconds", 0) == [1, 2, 3]  # of rounds there are no halves
        for name in names:
            assert len(ticks(page, name, 1)) >= 2
        page.hover("#returns .u-over", position={"x": 400, "y": 50})
        assert page.inner_text("#returns .u-series:first-child td")
        rows = page.locator("#clients tr").all_inner_texts()
        assert [r.split()[:2] for r in rows[1:]] == [["0", "6"], ["1", "6"], ["2", "6"]]
        page.wait_for_function("() => document.getElementById('replay').naturalWidth > 100")
        assert page.inner_text("#shown") == "after round 3"
        page.select_option("#client", "2")
        page.wait_for_function("() => document.getElementById('replay').naturalWidth > 100")
        go_on()
        page.wait_for_function("() => document.getElementById('state').textContent.includes('finished after 4 rounds')")
        page.wait_for_function("() => document.getElementById('shown').textContent === 'at the end of the run'")
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        told = [r.split() for r in page.locator("#clients tr").all_inner_texts()[1:]]
        plotted = drawn(page, "returns")
        assert plotted[0] == list(range(1, 9))
        assert drawn(page, "seconds")[0] == [1, 2, 3, 4]
        assert page.inner_text("#returns .u-series:first-child td")  # what the pointer is at outlasts new values
        for i in range(3):
            own = [m["return"] for m in metrics if m["client"] == i]
            assert plotted[1 + i][-1] == pytest.approx(sum(own) / 8)
            assert int(told[i][1]) == len(own) == 8
            assert float(told[i][2]) == pytest.approx(sum(own) / 8, abs=0.051)
        assert wrong == []
        assert all(url.startswith((f"http://{HOST}:{port}/", "data:", "blob:")) for url in asked)
        page.set_viewport_size({"width": 375, "height": 800})
        page.wait_for_function("() => document.documentElement.scrollWidth <= 375")  # charts follow a moment later
        page.close()


def drawn(page, name):
    """The columns of a chart: x, then each line."""
    return page.evaluate(f"document.getElementById('{name}').plot.data")


def ticks(page, name, axis):
    return page.evaluate(f"document.getElementById('{name}').plot.axes[{axis}]._splits")


HOSTILE = "</script><img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


def test_a_run_by_steps_is_shown_with_its_rounds(tmp_path):
    train(tiny(tmp_path, **SETTINGS, steps=200, round_steps=60))
    watched = Watched(tmp_path)
    assert watched.about()["rounds"] == 4
    assert len(watched.data(0, 0)["rounds"]) == 4


def test_hostile_names_are_shown_and_not_run(cut, browser, monkeypatch):
    folder, _ = cut
    watched = Watched(folder)
    about = {**watched.about(), **dict.fromkeys(("env", "method", "setting", "learner", "run"), HOSTILE)}
    monkeypatch.setattr(Watched, "about", lambda self: about)
    with serving(folder) as port:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(f"http://{HOST}:{port}/")
        page.wait_for_selector("#returns canvas")
        assert page.title() == f"{HOSTILE} – FedQHD"
        assert page.text_content("h1") == f"{HOSTILE}: {HOSTILE}, {HOSTILE}"
        assert page.locator("img[src=x]").count() == 0
        page.close()


def test_what_rounds_took_and_what_became_of_replies_is_written_once_a_round(tmp_path):
    summary = train(tiny(tmp_path / "x", attack="noise", liars=0.34, **SETTINGS))
    rows = [json.loads(line) for line in (tmp_path / "x" / "rounds.jsonl").read_text().splitlines()]
    assert [r["round"] for r in rows] == [0, 1, 2, 3]
    assert all(r["seconds"] > 0 for r in rows)
    assert sum(r["seconds"] for r in rows) <= summary["wall_seconds"] + 0.01
    assert sum(r["cpu_seconds"] for r in rows) == pytest.approx(summary["cpu_seconds"], abs=0.05)
    assert rows[-1]["left out"] == sum(summary["replies"]["left out"].values())
    assert set(rows[-1]["apart"]) == {"0", "1", "2"}
    # The one that sends noise is furthest away.
    liar = str(summary["liars"][0])
    assert max(rows[-1]["apart"], key=rows[-1]["apart"].get) == liar


def test_whole_lines_from_a_byte_on(tmp_path):
    file = tmp_path / "f"
    assert lines_after(file, 5) == ([], 0)
    file.write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert lines_after(file, 0) == ([{"a": 1}, {"a": 2}], 18)
    assert lines_after(file, 9) == ([{"a": 2}], 18)
    assert lines_after(file, 18) == ([], 18)
    file.write_text('{"b": 1}\n')
    assert lines_after(file, 18) == ([{"b": 1}], 9)


def test_it_answers_this_machine_alone(cut):
    folder, _ = cut
    with serving(folder) as port:
        assert get(port, "/about")[0] == 200
        assert get(port, "/about", host=f"localhost:{port}")[0] == 200
        assert get(port, "/about", host="evil.example")[0] == 403
        assert get(port, "/about", Origin="http://evil.example")[0] == 403
        assert get(port, "/about", Origin=f"http://127.0.0.1:{port}")[0] == 200
        assert get(port, "/../config.toml")[0] == 404
        status, why = get(port, "/replay.gif?client=77")
        assert status == 404
        assert b"client=77" in why
        listening = subprocess.run(["ss", "-ltn"], capture_output=True, text=True).stdout if shutil.which("ss") else ""
        assert f"0.0.0.0:{port} " not in listening


def test_an_environment_without_pictures_says_so(tmp_path):
    train(tiny(tmp_path / "x", env=CORRIDOR))
    with serving(tmp_path / "x") as port:
        status, why = get(port, "/replay.gif?client=0")
        assert status == 404
        assert why


def test_the_command_says_where_it_is_and_ends(cut):
    folder, _ = cut
    command = [str(Path(sys.executable).parent / "fedqhd"), "watch", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        port = int(re.search(r"http://127\.0\.0\.1:(\d+)/", process.stdout.readline())[1])
        status, page = get(port, "/")
        assert status == 200
        assert b"<title>FedQHD run</title>" in page
        process.terminate()
        assert process.wait(60) == 143


def test_a_run_that_has_not_started_is_waited_for(cut, tmp_path):
    process = start(FEDQHD, "watch", "later/run", "--port", 0, cwd=tmp_path)
    try:
        assert process.stdout.readline() == (
            "waiting up to 60 seconds for a run to start in later/run (Ctrl-C ends it)\n"
        )
        shutil.copytree(cut[0], tmp_path / "later" / "run")
        assert process.stdout.readline().startswith("watching later/run: http://127.0.0.1:")
    finally:
        end(process)


def test_waiting_ends_with_ctrl_c(tmp_path):
    process = start(FEDQHD, "watch", "never", "--port", 0, cwd=tmp_path)
    read_until(process, "waiting up to 60 seconds")
    process.send_signal(signal.SIGINT)
    assert "stopped by SIGINT" in process.communicate(timeout=60)[0]
    assert process.returncode == 130


def test_the_run_of_a_server_is_resumed_by_its_own_command(cut, tmp_path):
    folder = tmp_path / "federation"
    shutil.copytree(cut[0], folder)
    (folder / RUN_NAME).write_text("0123abcd\n")
    assert Watched(folder).about()["resume"] == f"fedqhd federate server --resume --out {folder}"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nowhere", "--wait", "0"], "run='nowhere' is not the folder of a run"),
        ([".", "--wait", "0.3"], "it has no config.toml"),
        ([".", "--port", "99999"], "port=99999 is not possible"),
    ],
)
def test_what_cannot_be_watched(args, says, tmp_path):
    done = fedqhd("watch", *args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr


def test_a_port_that_is_taken(cut):
    folder, _ = cut
    with serving(folder) as port, pytest.raises(FedQHDError, match=f"port={port} cannot be used"):
        serve(folder, port, 0, print)
