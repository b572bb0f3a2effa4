"""The page in a real browser: it loads without errors or network, draws its charts, and is used by mouse and keys."""

from __future__ import annotations

import math
import re
from importlib import resources

import pytest
from PIL import Image

from fedqhd.core.templates import inline
from fedqhd.report.page import page as make_page
from fedqhd.studies import registry, store
from fedqhd.studies.presets import METHODS
from invented import write_results
from processes import fedqhd

TABS = ["main", "curves", "cost", "ablations", "scalability", "robustness", "policies", "settings"]


def described(value):
    return {"iqm": value, "lo": value - 5, "hi": value + 5, "mean": value, "std": 5}


def write_all_results(results):
    """Every kind of result file."""
    write_results(results)
    measures = ("gap_rms", "gap_max", "gap_everywhere_rms")
    gaps = [{"training": "without", "anchors": "rollout", "lam": 0.01, "D": D, "m": 4 * D, "seed": s, "compile": c,
             **dict.fromkeys(measures, D**-0.5 + 0.01 * s), "greedy": 400.0, "commit": "abc"}
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The page of all of them."""
    home = tmp_path_factory.mktemp("page")
    write_all_results(home / "results")
    done = fedqhd("report", "--tensorboard", "events", cwd=home)
    assert done.returncode == 0, done.stderr
    return home


def opened(browser, folder, **options):
    """The page in a tab of its own, with everything that went wrong or left the file."""
    context = browser.new_context(offline=True, **options)
    page = context.new_page()
    page.wrong, page.asked = [], []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    page.on("console", lambda message: page.wrong.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: (page.wrong.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: page.asked.append(request.url))
    page.goto((folder / "report" / "index.html").as_uri())
    return page


@pytest.fixture
def page(browser, folder):
    page = opened(browser, folder, viewport={"width": 1280, "height": 900})
    yield page
    page.context.close()


def visible(page):
    return page.eval_on_selector_all("[role=tabpanel]", "all => all.filter(p => !p.hidden).map(p => p.id)")


def test_it_loads_without_errors_and_asks_nobody(page):
    assert page.wrong == []
    assert [url for url in page.asked if not url.startswith(("file:", "data:"))] == []
    assert page.title() == "FedQHD: results"
    policy = page.get_attribute("meta[http-equiv=Content-Security-Policy]", "content")
    assert policy.startswith("default-src 'none'")  # the browser itself would refuse to ask
    assert not re.search(r"""(src|href)\s*=\s*["']?(https?:)?//""", page.content())


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


CHARTS = {"main": 2, "curves": 8, "cost": 17, "ablations": 2, "scalability": 2, "robustness": 4}
LOOK = """all => all.map(place => {
  const canvas = place.querySelector("canvas"), colours = new Set();
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  for (let k = 0; k < pixels.length; k += 4)
    if (pixels[k + 3] > 200) colours.add((pixels[k] << 16) | (pixels[k + 1] << 8) | pixels[k + 2]);
  return { width: canvas.clientWidth, told: place.getAttribute("aria-label"), colours: [...colours] };
})"""


def test_charts_are_drawn_and_told(page):
    for name, least in CHARTS.items():
        page.click(f"#{name}")
        page.wait_for_selector(f"#panel-{name} .plot canvas")
        charts = page.eval_on_selector_all(f"#panel-{name} .plot", LOOK)
        assert len(charts) >= least
        for chart in charts:
            assert chart["width"] > 200
            assert len(chart["told"]) > 10
            assert len(chart["colours"]) > 10  # blank it has none
    assert page.wrong == []


def test_a_method_has_its_colour_in_every_chart(page):
    fedqhd_orange = 0xD55E00
    for name in ("main", "curves", "cost"):
        page.click(f"#{name}")
        page.wait_for_selector(f"#panel-{name} .plot canvas")
        assert all(
            fedqhd_orange in chart["colours"] for chart in page.eval_on_selector_all(f"#panel-{name} .plot", LOOK)
        )


def test_the_legend_names_the_methods_and_the_papers_line(page):
    page.click("#curves")
    first = page.locator("#panel-curves figure").first
    names = first.locator(".u-series.line .u-label").all_inner_texts()
    marked = [m + ("†" if m.startswith("oracle") else "") for m in METHODS]
    assert names == [*marked, "the paper's FedQHD, final"]
    assert first.evaluate("f => f.querySelector('.plot').plot.bands.length") == 7


def test_a_line_takes_its_band_along_when_it_is_switched_off(page):
    page.click("#curves")
    first = page.locator("#panel-curves figure").first
    count = "f => f.querySelector('.plot').plot.series.filter(s => s.show).length"
    before = first.evaluate(count)
    first.locator(".u-series.line th").first.click()
    assert first.evaluate(count) == before - 3  # the line and both edges


TICKS = """all => all.map(place => [place.getAttribute("aria-label"), ["x", "y"].map((scale, k) => ({
  ticks: place.plot.axes[k]._splits.filter((_, i) => place.plot.axes[k]._values[i] != null),
  log: place.plot.scales[scale].distr === 3 }))])"""


def mantissa(value):
    return round(abs(value) / 10 ** math.floor(math.log10(abs(value)) + 1e-9), 6)


def is_round(ticks, log):
    if log:
        return all(mantissa(t) in (1, 2, 5) or math.log2(t).is_integer() for t in ticks)
    step = ticks[1] - ticks[0]
    return mantissa(step) in (1, 2, 5) and all(abs(t / step - round(t / step)) < 1e-6 for t in ticks)


def test_the_test_of_roundness_tells_them_apart():
    assert is_round([0, 20, 40], False)
    assert is_round([0.1, 0.2, 0.5, 1.0], True)
    assert not is_round([0, 25, 50], False)
    assert not is_round([0.1, 0.3, 1.0], True)
    assert not is_round([12, 112, 212], False)
    assert not is_round([0, 119.75, 239.5], False)
    assert not is_round([0.7, 7], True)


def test_titles_do_not_repeat_what_stands_above_them(page):
    """The tab and the section say what is drawn; the title of a chart says only what sets it apart."""
    page.click("#curves")
    titles = page.locator("#panel-curves figcaption").all_inner_texts()
    assert titles[0] == "CartPole-v1, homogeneous"
    assert len(set(titles)) == len(titles)
    assert (
        page.locator("#panel-curves .plot").first.get_attribute("aria-label").startswith("Learning curves on CartPole")
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_ticks_are_round_numbers(browser, folder, width):
    page = opened(browser, folder, viewport={"width": width, "height": 900})
    for name in CHARTS:
        page.click(f"#{name}")
        page.wait_for_selector(f"#panel-{name} .plot canvas")
        for chart, axes in page.eval_on_selector_all(f"#panel-{name} .plot", TICKS):
            for axis in axes:
                assert len(axis["ticks"]) >= 2, (chart, axis)
                assert is_round(axis["ticks"], axis["log"]), (chart, axis)
    page.context.close()


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
    assert "Charts are drawn by JavaScript" in page.inner_text("noscript")
    figure = page.locator("#panel-scalability figure").first
    figure.locator("summary").click()
    assert figure.locator("tbody tr").first.inner_text().split("\t") == ["1", "480 [475, 485]", "480 [475, 485]"]
    context.close()


def test_on_paper_every_chart_is_drawn(page):
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.eval_on_selector_all(".plot", "all => all.every(p => p.querySelector('canvas'))")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert visible(page) == ["panel-main"]


HOSTILE = "</script><img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"


@pytest.mark.slow
def test_hostile_names_are_shown_and_not_run(browser, tmp_path):
    results = tmp_path / "results"
    write_all_results(results)
    rows = store.read_rows(results, "main")
    evil = {**rows[0], "method": HOSTILE, "env": HOSTILE, "setting": HOSTILE, "command": HOSTILE, "runs": []}
    evil["failed"] = [{"seed": 1, "error": HOSTILE}]
    store.write(results, registry.study("main"), [*rows, evil], HOSTILE)
    gaps = [{**r, "anchors": HOSTILE, "commit": HOSTILE} for r in store.read_rows(results, "ablation-dim")]
    store.write(results, registry.study("ablation-dim"), gaps)
    text, _ = make_page(results)
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text(text)
    page = opened(browser, tmp_path)
    for name in TABS:
        page.click(f"#{name}")
    page.wait_for_timeout(300)
    assert page.title() == "FedQHD: results"
    assert page.wrong == []
    assert page.locator("img[src=x]").count() == 0
    captions = page.eval_on_selector_all("#panel-ablations .plot", "all => all.map(p => p.getAttribute('aria-label'))")
    assert len(captions) == 2
    assert all(HOSTILE in caption for caption in captions)  # in the page, and in the data of the chart
    assert page.evaluate("document.querySelector('#panel-ablations .plot').chart.caption") == captions[0]
    assert HOSTILE in page.text_content("#panel-settings li:has-text('seed 1')")
    assert HOSTILE in page.text_content("header strong")
    page.context.close()


def test_the_tables_have_all_of_it(folder):
    text = (folder / "RESULTS.md").read_text()
    for line in ("| CartPole-v1, homogeneous | 480.0 [475.0, 485.0] |", "| CartPole-v1, dqn | 300.0 |",
                 "| warm-start, D up to 512 | -0.4"):  # fmt: skip
        assert line in text


def test_what_is_put_into_pages_cannot_end_its_element():
    """Scripts and style sheets go into pages as they are; uPlot comes with its licence."""
    home = resources.files("fedqhd")
    folders = ("report/templates", "report/vendor/uplot", "ui/templates")
    files = [f"{folder}/{file.name}" for folder in folders for file in (home / folder).iterdir()]
    names = [name for name in files if name.endswith((".js", ".css"))]
    assert len(names) == 8
    for name in names:
        assert not re.search("</(script|style)|<!--", inline(name), re.I), name
    assert "MIT" in (home / "report/vendor/uplot/LICENSE").read_text()


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
