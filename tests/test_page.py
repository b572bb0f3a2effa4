"""The page in a real browser: it loads without errors or network, draws its charts, and is used by mouse and keys."""

from __future__ import annotations

import pytest
from PIL import Image

from fedqhd.studies import registry, store
from test_cli import fedqhd
from test_report import write_results

TABS = ["main", "curves", "cost", "ablations", "scalability", "robustness", "policies", "settings"]


def described(value):
    return {"iqm": value, "lo": value - 5, "hi": value + 5, "mean": value, "std": 5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Every kind of result file, and the page of them."""
    home = tmp_path_factory.mktemp("page")
    results = write_results(home / "results")
    measures = ("gap_rms", "gap_max", "gap_everywhere_rms")
    gaps = [{"training": "without", "anchors": "rollout", "lam": 0.01, "D": D, "m": 4 * D, "seed": s, "compile": c,
             **dict.fromkeys(measures, D**-0.5), "greedy": 400.0, "commit": "abc"}
            for D in (16, 64, 256) for s in (0, 1, 2) for c in ("overwrite", "warm-start")]  # fmt: skip
    scaling = [{"env": e, "setting": s, "clients": n, "seeds": 3, "final_return": described(v)}
               for e, v in (("CartPole-v1", 480.0), ("LunarLander-v3", 190.0))
               for s in ("homogeneous", "heterogeneous") for n in (1, 2, 5, 20)]  # fmt: skip
    damages = {"zeroed": (0.0, 0.5), "flipped": (0.0, 0.3), "noised": (0.0, 1.0), "bits": (1, 8, 32)}
    damaged = [{"env": "CartPole-v1", "model": m, "damage": d, "amount": a, "seeds": 5,
                "greedy_return": described(300.0)}
               for m in ("fedqhd", "dqn") for d, amounts in damages.items() for a in amounts]  # fmt: skip
    split = dict.fromkeys(("environment", "acting", "learning", "federation"), 1.0)
    cost = [{"preset": "tuned", "env": "CartPole-v1", "setting": "homogeneous", "method": m, "split_seconds": split,
             "seeds": 10, "cpu_seconds": 60.0, "bytes_up_per_round": 2048, "bytes_down_per_round": 2048,
             "until": {"return": 466.3, "cpu_seconds": spent, "runs": 3, "reached": reached}}
            for m, spent, reached in (("fedqhd", 9.0, 3), ("fedavg-dqn", 99.0, 1))]  # fmt: skip
    files = {"ablation-dim": gaps, "scalability": scaling, "robustness": damaged, "cost": cost}
    for name, rows in files.items():
        store.write(results, registry.study(name), rows)
    (results / "policies").mkdir()
    frames = [Image.new("RGB", (80, 60), colour) for colour in ("white", "red", "black")]
    frames[0].save(results / "policies" / "CartPole-v1.gif", save_all=True, append_images=frames[1:], duration=100)
    done = fedqhd("report", "--tensorboard", "events", cwd=home)
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture
def page(browser, folder):
    """The page at desktop width, with everything that went wrong or left the file."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    page = context.new_page()
    page.wrong, page.asked = [], []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda message: page.wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto((folder / "report" / "index.html").as_uri())
    yield page
    context.close()


def visible(page):
    return page.eval_on_selector_all("[role=tabpanel]", "all => all.filter(p => !p.hidden).map(p => p.id)")


def test_it_loads_without_errors_and_asks_nobody(page):
    assert page.wrong == []
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.title() == "FedQHD: results"


def test_a_chart_says_who_does_not_get_to_the_papers_return(folder):
    drawn = "".join(figure.read_text() for figure in (folder / "report" / "figures").iterdir())
    assert "CPU seconds until 466.3" in drawn
    assert "99, 2 of 3 runs short" in drawn


def test_tabs_by_mouse(page):
    assert page.eval_on_selector_all("[role=tab]", "all => all.map(t => t.id)") == TABS
    for name in TABS:
        page.click(f"#{name}")
        assert visible(page) == [f"panel-{name}"]
        assert page.get_attribute(f"#{name}", "aria-selected") == "true"
    assert page.wrong == []


def test_tabs_by_address(page):
    for name in ("cost", "robustness"):
        page.goto(f"{page.url.partition('#')[0]}#{name}")
        assert visible(page) == [f"panel-{name}"]
        assert page.evaluate("scrollY") == 0
    page.goto(f"{page.url.partition('#')[0]}#nothing")
    assert visible(page) == ["panel-main"]


def test_tabs_by_keys(page):
    page.focus("#main")
    for key, name in (("ArrowRight", "curves"), ("End", "settings"), ("ArrowRight", "main"), ("ArrowLeft", "settings")):
        page.keyboard.press(key)
        assert visible(page) == [f"panel-{name}"]
        assert page.evaluate("document.activeElement.id") == name


def test_charts_are_drawn_and_told(page):
    for name, least in (("curves", 8), ("cost", 17), ("ablations", 2), ("scalability", 2), ("robustness", 4)):
        page.click(f"#{name}")
        charts = page.eval_on_selector_all(
            f"#panel-{name} img", "all => all.map(i => [i.complete, i.naturalWidth, i.alt])"
        )
        assert len(charts) >= least
        assert all(complete and width > 200 and len(told) > 10 for complete, width, told in charts)


def test_the_main_table_has_ours_beside_the_papers(page):
    line = page.inner_text("#panel-main tbody tr:has(th:text-is('fedqhd'))")
    assert "★ 432.0" in line
    assert "paper 466.3" in line
    assert "8 of 8" in page.inner_text("#panel-main")
    assert page.locator("#panel-main tr:has(th:text-is('oracle-dqn†')) td.best").count() == 0


def test_a_policy_moves_when_told(page):
    page.click("#policies")
    still = page.get_attribute("#policy-CartPole-v1", "src")
    page.click("text=Play")
    assert page.get_attribute("#policy-CartPole-v1", "src").startswith("data:image/gif")
    page.click("text=Stop")
    assert page.get_attribute("#policy-CartPole-v1", "src") == still


def test_it_says_how_every_number_was_made(page):
    page.click("#settings")
    text = page.text_content("#panel-settings")
    assert "fedqhd reproduce tune" in text
    assert "at abc1234" in text
    assert "seed 7: no space left" in text


def test_it_fits_a_phone(browser, folder):
    page = browser.new_page(viewport={"width": 380, "height": 800})
    page.goto((folder / "report" / "index.html").as_uri())
    for name in TABS:
        page.click(f"#{name}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 380  # only tables scroll, in themselves
    sizes = page.eval_on_selector_all("[role=tab]", "all => all.map(t => t.getBoundingClientRect().height)")
    assert min(sizes) >= 44  # of a finger
    page.close()


def test_it_can_be_read_without_scripts(browser, folder):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "report" / "index.html").as_uri())
    assert page.locator("[role=tabpanel]:visible").count() == len(TABS)
    context.close()


def test_the_tables_have_all_of_it(folder):
    text = (folder / "RESULTS.md").read_text()
    for line in ("| CartPole-v1, homogeneous | 480.0 [475.0, 485.0] |", "| CartPole-v1, dqn | 300.0 |",
                 "| warm-start, D up to 512 | -0.50 [-0.50, -0.50] | abc |"):  # fmt: skip
        assert line in text


def test_figures_are_files_too(folder):
    names = {p.name for p in (folder / "report" / "figures").iterdir()}
    assert "learning-curves-on-cartpole-v1-homogeneous-with-95-bands.svg" in names
    assert len(names) >= 32


def test_tensorboard_reads_the_same_numbers(folder):
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = loader.EventAccumulator(str(folder / "events" / "tuned" / "fedqhd-homogeneous"))
    events.Reload()
    (final,) = events.Scalars("final_return/CartPole-v1")
    assert (final.step, final.value) == (600, pytest.approx(432.0))
    assert len(events.Scalars("training return/LunarLander-v3")) == 60
