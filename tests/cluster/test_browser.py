"""The page of fits in a browser: headless Chromium, controlled by Selenium. Skipped if these are not installed."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

import dtrees
from tests.cluster.samples import FRAME, in_partitions, wait_until
from tests.cluster.samples import REGRESSION as Y

pytestmark = pytest.mark.slow


def walking(found: str, visit: str) -> str:
    """Return a script that visits all nodes of the page, including the shadow trees of Bokeh's models, and returns what it found."""
    return f"""
const found = {found};
const walk = (node) => {{
    {visit}
    if (node.shadowRoot) walk(node.shadowRoot);
    node.childNodes.forEach(walk);
}};
walk(document.body);
return found;
"""


#: All texts of the page.
TEXTS = walking(
    "[]",
    "if (node.nodeType === Node.TEXT_NODE && node.textContent.trim()) found.push(node.textContent.trim());"
    'if (node.nodeName === "STYLE" || node.nodeName === "SCRIPT") return;',
)
#: For each visible plot, the numbers of pixels in the colour of the first curve, and in that of bars for seconds of work.
PIXELS = walking(
    "[]",
    """if (node.nodeName === "CANVAS" && node.width && node.height) {
        const pixels = node.getContext("2d").getImageData(0, 0, node.width, node.height).data;
        const counts = [0, 0];
        for (let i = 0; i < pixels.length; i += 4) {
            const colour = (pixels[i] << 16) + (pixels[i + 1] << 8) + pixels[i + 2];
            if (pixels[i + 3] === 255) counts.forEach((_, k) => { counts[k] += colour === [0xef1161, 0xffa51c][k]; });
        }
        found.push(counts);
    }""",
)
#: The ends of the tables, and the start of the list of events, in pixels from above.
HEIGHTS = walking(
    "{tables: [], lines: 0}",
    'if (node.nodeName === "TABLE") found.tables.push(node.getBoundingClientRect().bottom);'
    'if (node.nodeName === "B" && node.textContent === "What happened") found.lines = node.getBoundingClientRect().top;',
)


@pytest.fixture
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("Chromium and ChromeDriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1400,1400"):
        options.add_argument(f"--{option}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    window = webdriver.Chrome(options, webdriver.ChromeService(driver))
    yield window
    window.quit()


def test_a_fit_is_followed(client: Client, browser: Any, tmp_path: Path) -> None:
    """The page shows it growing and then, without a reload, finished, with curves and bars drawn, and without an error."""
    go_on = tmp_path / "go on"

    def wait_for_word(progress: dtrees.callbacks.Progress) -> None:
        if progress.done == 2:
            wait_until(go_on.exists, 120)

    model = dtrees.GradientBoostingRegressor(n_estimators=4)
    many = np.tile(np.arange(len(FRAME)), 500)  # so that workers work longer than they communicate
    X, y = in_partitions(FRAME.iloc[many], (100_000, 110_000)), in_partitions(Y.iloc[many], (100_000, 110_000))
    future = dtrees.submit(model, X, y, client=client, callbacks=[wait_for_word], placement="sharded")

    port = client.scheduler_info()["services"]["dashboard"]
    wait_until(lambda: future.key in " ".join(seen_in(browser, f"http://127.0.0.1:{port}/dtrees")), 60)
    wait_until(lambda: {"growing", "2 of 4", future.key} <= set(browser.execute_script(TEXTS)), 60)
    go_on.touch()
    wait_until(lambda: {"finished", "4 of 4", "100%"} <= set(browser.execute_script(TEXTS)), 60)
    wait_until(lambda: curves_and_bars_are_drawn(browser), 60)
    texts = " ".join(browser.execute_script(TEXTS))
    assert "GradientBoostingRegressor" in texts
    assert "sharded" in texts
    for worker in client.scheduler_info()["workers"]:
        assert worker.removeprefix("tcp://") in texts
    heights = browser.execute_script(HEIGHTS)  # the lines were once drawn beside the table of workers, over some of its columns
    assert len(heights["tables"]) == 2
    assert max(heights["tables"]) <= heights["lines"]
    errors = [line["message"] for line in browser.get_log("browser") if line["level"] == "SEVERE" and "favicon" not in line["message"]]
    assert errors == []
    pixels = np.asarray(screenshot(browser))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[-1]), axis=0)) > 20
    assert future.result().n_estimators_ == 4


def seen_in(browser: Any, address: str) -> list[str]:
    """Load a page, and return its texts."""
    browser.get(address)
    time.sleep(1.0)
    return [str(text) for text in browser.execute_script(TEXTS)]


def curves_and_bars_are_drawn(browser: Any) -> bool:
    """Return whether one plot has the first curve, and another one more of the bars than their legend."""
    pixels = browser.execute_script(PIXELS)
    return any(curve > 50 and bars == 0 for curve, bars in pixels) and any(bars > 2000 for _, bars in pixels)


def screenshot(browser: Any) -> Any:
    image = pytest.importorskip("matplotlib.image")
    return image.imread(io.BytesIO(browser.get_screenshot_as_png()), format="png")
