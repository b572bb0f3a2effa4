"""`fedqhd compare` through the real command line, and its page in a real browser."""

from __future__ import annotations

import pytest
from PIL import Image

from invented import write_group
from processes import fedqhd


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three groups on two environments, and what the command says about them."""
    home = tmp_path_factory.mktemp("compare")
    for env, base in (("CartPole-v1", 100), ("MountainCar-v0", -150)):
        for k, method in enumerate(("fedqhd", "independent-qhd", "fedavg-dqn")):
            finals = [base - 10 * k + seed for seed in range(4)]
            write_group(home / "runs" / env / method, finals, episodes=30, env=env, method=method)
    done = fedqhd("compare", "runs", "--out", "out", cwd=home)
    assert done.returncode == 0, done.stderr
    return home, done.stdout


def test_it_prints_the_returns_and_who_is_better(folder):
    lines = [" ".join(line.split()) for line in folder[1].splitlines()]
    assert "Returns on CartPole-v1" in lines
    (row, _) = (line for line in lines if line.startswith("fedqhd 4 "))
    assert row.startswith("fedqhd 4 101.5 [10")
    assert "fedqhd over independent-qhd 2 1.00 [1.00, 1.00] 1.00 [1.00, 1.00]" in lines
    assert lines[-1] == "written: out/comparison.png out/comparison.html"


def test_groups_can_be_chosen_and_nothing_is_written_unless_asked(folder):
    home, _ = folder
    before = sorted(home.rglob("*"))
    done = fedqhd("compare", "runs/CartPole-v1", "--by", "setting", "round-episodes", cwd=home)
    assert done.returncode == 0, done.stderr
    assert "12" in done.stdout.splitlines()[2].split()
    assert "Runs of the same group also differ in method" in done.stdout.replace("\n", " ")
    assert sorted(home.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ("nowhere", "'nowhere' is not a folder"),
        ("empty", "'empty' contains no finished run"),
        ("unfinished", "'unfinished' is not finished"),
        ("done --by methd", "by='methd' is not a setting of these runs (did you mean 'method'?)"),
        ("done --by env", "by='env' is not possible"),
        ("", "RUN"),
        ("done --to out", "'--to' is not an argument of compare"),
    ],
)
def test_mistakes_get_one_sentence_and_write_nothing(args, says, tmp_path):
    write_group(tmp_path / "done", [1, 2])
    (tmp_path / "empty").mkdir()
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "config.toml").write_text("")
    before = sorted(tmp_path.rglob("*"))
    done = fedqhd("compare", *args.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_the_picture_is_one(folder):
    with Image.open(folder[0] / "out" / "comparison.png") as picture:
        assert picture.size[0] > 1500
        assert len(picture.convert("RGB").getcolors(1 << 24)) > 100  # a blank one has a single colour


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_the_page_draws_its_charts_and_fits(browser, folder, width, scheme):
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    wrong, asked = [], []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: asked.append(request.url))
    page.goto((folder[0] / "out" / "comparison.html").as_uri())
    page.wait_for_selector(".plot canvas")
    assert page.locator(".plot canvas").count() == 2
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    names = page.locator("figure").first.locator(".u-series.line .u-label").all_inner_texts()
    assert names == ["fedavg-dqn (4 seeds)", "fedqhd (4 seeds)", "independent-qhd (4 seeds)"]
    # The returns next to the names are in sight on a phone, too.
    cell = page.locator("tbody tr").first.locator("td").nth(1).bounding_box()
    assert cell["x"] + cell["width"] <= width
    assert wrong == []
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()
