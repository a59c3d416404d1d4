"""The local page in a real Chromium."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the extra isthmus[page] is not installed")

from tests.helpers.browser import Served, chromium, served, until, window
from tests.helpers.pages import DIGESTS, begun, scored_run

pytestmark = pytest.mark.extra
CSS = "css selector"
BAD = "<script>window.harm=1</script><img src=x onerror='window.harm=2'>"
BASIC = ("/", "/run?folder=one", "/ledger?folder=one", "/disclosure?folder=one", "/compare?run=one&run=two")


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = chromium(tmp_path_factory.mktemp("profile"))
    yield found
    found.quit()


@pytest.fixture
def look(driver: Any) -> Iterator[Callable[[Served, str], Any]]:
    """Open an address of a page, with its cookie."""
    window(driver, 1200)

    def at(page: Served, path: str = "/") -> Any:
        if not driver.current_url.startswith(page.base):
            driver.get(page.address)
            until(lambda: driver.find_elements(CSS, "main"))
        driver.get(page.base + path)
        return driver

    yield at
    driver.get("about:blank")


def text(driver: Any, selector: str = "main") -> str:
    return str(driver.find_element(CSS, selector).text)


def press(driver: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(driver).send_keys(key).perform()


def told(run: Path, **changes: Any) -> None:
    """Let a run tell something new, as its process would."""
    file = run / "status-host-0.json"
    now = {**json.loads(file.read_text()), "updated": datetime.now(UTC).isoformat(), **changes}
    file.write_text(json.dumps(now))
    epoch = now["epoch"]
    with open(run / "metrics.jsonl", "a") as log:
        for line in ({}, {"valid": {"accuracy": epoch / 10}}):
            log.write(json.dumps({"step": epoch, "epoch": epoch, "loss": 1 / epoch, **line}) + "\n")


def test_an_open_page_follows_a_run_without_being_loaded_again(look: Any, tmp_path: Path) -> None:
    run = begun(tmp_path / "going")
    with served(tmp_path) as page:
        driver = look(page, "/run?folder=going")
        driver.execute_script("window.same = true")
        assert "No validation is written down yet" in text(driver)
        for epoch in (5, 6):
            crossed = {"step": epoch, "kinds": {"parameters": [1, 1, 1000 * epoch]}, "parties": {"silo-0": [9, 9]}}
            told(run, epoch=epoch, crossed=crossed)
            until(lambda epoch=epoch: f"{epoch} of 9" in text(driver))
            assert f"{epoch} kB\ncrossed so far" in text(driver, ".tiles")
        assert len(driver.find_element(CSS, "#chart-validation polyline").get_attribute("points").split()) == 2
        scored_run(tmp_path / "new")
        look(page, "/")
        assert "6 of 9" in text(driver)
        driver.execute_script("window.same = true")
        told(run, epoch=7)
        until(lambda: "7 of 9" in text(driver))
        scored_run(tmp_path / "newer")
        until(lambda: "newer" in text(driver))
        told(run, state="finished")
        until(lambda: "cut off" in text(driver))  # it says that it has finished, and left no metrics
        assert driver.execute_script("return window.same")


def test_the_ledger_is_filtered(look: Any, tmp_path: Path) -> None:
    from selenium.webdriver.support.ui import Select

    scored_run(tmp_path / "one")
    with served(tmp_path) as page:
        driver = look(page, "/run?folder=one")
        driver.find_element("link text", "Ledger").click()
        until(lambda: driver.find_elements("name", "kind"))
        Select(driver.find_element("name", "kind")).select_by_visible_text("column names and label names")
        Select(driver.find_element("name", "sender")).select_by_visible_text("silo-1")
        driver.find_element("name", "from").send_keys("1")
        driver.find_element(CSS, ".filter button").click()
        until(lambda: len(driver.find_elements(CSS, ".lines tbody tr")) == 3)
        rows = driver.find_elements(CSS, ".lines tbody tr")
        assert all("silo-1" in row.text and "column names" in row.text for row in rows)
        assert text(driver, "#sums").startswith("3.0 kB in 3 messages")
        driver.find_element("name", "to").send_keys("soon")
        driver.find_element(CSS, ".filter button").click()
        until(lambda: driver.find_elements(CSS, "#problem"))
        assert "The last step is 'soon'" in text(driver, "#problem")
        assert driver.find_element("name", "to").get_attribute("value") == "soon"


def test_runs_are_ticked_and_stand_side_by_side(look: Any, tmp_path: Path) -> None:
    scored_run(tmp_path / "one")
    scored_run(tmp_path / "two", method="local")
    scored_run(tmp_path / "other", data_digests={**DIGESTS, "silo-0": {"nodes": "x"}})
    with served(tmp_path) as page:
        driver = look(page)
        ticks = {each.get_attribute("value"): each for each in driver.find_elements(CSS, ".runs input")}
        ticks["one"].click()
        until(lambda: not ticks["other"].is_enabled())
        assert "the same data set with other content" in text(driver, "tr[data-name=other]")
        assert not driver.find_element(CSS, "#ticked button").is_enabled()
        ticks["two"].click()
        until(lambda: driver.find_element(CSS, "#ticked button").is_enabled())
        driver.find_element(CSS, "#ticked button").click()
        until(lambda: "2 runs on blocks" in text(driver))
        assert len(driver.find_elements(CSS, "#comparison tbody tr")) == 2
        look(page, "/compare?run=one&run=other")
        assert "'other' does not stand beside the others" in text(driver)
        look(page)  # ticks are kept until they are taken back
        until(lambda: "2 ticked" in text(driver, "#ticked"))
        driver.find_element(CSS, "#untick").click()
        until(lambda: not driver.find_element(CSS, "#ticked").is_displayed())


def fill(driver: Any, **fields: str) -> None:
    for name, value in fields.items():
        field = driver.find_element("name", name)
        field.clear()
        field.send_keys(value)


def test_a_run_is_estimated_started_watched_stopped_and_resumed(look: Any, tmp_path: Path) -> None:
    with served(tmp_path, "--allow-start") as page:
        driver = look(page, "/start")
        fill(driver, silos="no", sets="nonsense")
        driver.find_element(CSS, "button.first").click()
        assert "This is 'no'" in text(driver, "#why-silos") and "'nonsense' is no key" in text(driver, "#why-sets")
        fill(driver, silos="3", epochs="3000", sets="data.nodes=64\ndata.degree=3\nmodel.hiden=8", name="mine")
        driver.find_element(CSS, "#plan").click()
        until(lambda: "hiden" in text(driver, "#estimate"), 90)  # the words of the command line
        fill(driver, sets="data.nodes=64\ndata.degree=3\nmodel.hidden=8")
        driver.find_element(CSS, "#plan").click()
        until(lambda: "would cross" in text(driver, "#estimate"), 90)
        assert "Settings have changed" not in text(driver, "#estimate")
        fill(driver, seeds="2", split="random")
        assert "Settings have changed" in text(driver, "#estimate")
        driver.find_element(CSS, "#plan").click()
        until(lambda: "in 2 seeds" in text(driver, "#estimate"), 90)
        fill(driver, seeds="1", hosts="9")
        driver.find_element(CSS, "#plan").click()
        until(lambda: "Hosts: There are 3 silos and a server" in text(driver, "#estimate"))
        fill(driver, hosts="2")
        driver.find_element(CSS, "button.first").click()
        until(lambda: driver.find_elements(CSS, "#chart-validation"), 90)
        before = text(driver, ".tile b")
        until(lambda: text(driver, ".tile b") != before)
        driver.find_element(CSS, "#stop").click()
        until(lambda: driver.find_elements(CSS, "#resume"), 60)
        assert text(driver, ".state") == "stopped"
        driver.find_element(CSS, "#resume").click()
        until(lambda: driver.find_elements(CSS, "#stop") and text(driver, ".state") == "running", 60)
        driver.find_element(CSS, "#stop").click()
        until(lambda: driver.find_elements(CSS, "#resume"), 60)


def test_dark_mode(look: Any, tmp_path: Path) -> None:
    scored_run(tmp_path / "one")
    with served(tmp_path) as page:
        driver = look(page, "/run?folder=one")
        seen = {}
        for scheme in ("light", "dark"):
            window(driver, 1200, scheme=scheme)
            seen[scheme] = driver.execute_script(
                "const of = (s, p) => getComputedStyle(document.querySelector(s))[p];"
                "return [of('body', 'backgroundColor'), of('body', 'color'), of('polyline', 'stroke')]"
            )
        assert all(light != dark for light, dark in zip(seen["light"], seen["dark"], strict=True))
        assert seen["dark"][0] == "rgb(20, 23, 27)"


def test_names_do_no_harm_and_nothing_comes_from_elsewhere(look: Any, tmp_path: Path) -> None:
    bad = BAD.replace("/", "∕")
    silos = {f"{BAD}{i}": 0.5 for i in range(3)}
    lines = [(e, e, "step", f"{BAD}0", f"{BAD}1", "embeddings", BAD, "", 1, 1, 10) for e in (1, 2)]
    for name in (bad, f"{bad}2"):
        scored_run(tmp_path / name, silos, method=BAD, data=BAD, notes=[BAD], lines=lines)
    (tmp_path / bad / "report.html").write_text(BAD)
    begun(tmp_path / f"{bad}3", why=BAD, state="failed")
    with served(tmp_path) as page:
        from urllib.parse import quote

        names = [f"folder={quote(bad)}", f"folder={quote(bad + '3')}"]
        paths = [f"{path}?{name}" for path in ("/run", "/ledger", "/disclosure", "/report") for name in names]
        driver = look(page)
        driver.find_element(CSS, ".runs input:enabled").click()  # its name goes through the script too
        until(lambda: "window.harm" in text(driver, "#ticked"))
        for path in ("/", *paths, f"/compare?run={quote(bad)}&run={quote(bad + '2')}"):
            look(page, path)
            assert driver.execute_script("return window.harm") is None
            loaded = driver.execute_script("return performance.getEntriesByType('resource').map((each) => each.name)")
            assert all(each.startswith(page.base) for each in loaded)
        driver.execute_script("sessionStorage.clear()")
        assert not [each for each in driver.get_log("browser") if "Content Security Policy" in each["message"]
                    and "/report" not in each["message"]]  # fmt: skip


def test_the_keyboard_alone_is_enough(look: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    scored_run(tmp_path / "one")
    scored_run(tmp_path / "two")
    with served(tmp_path) as page:
        driver = look(page)

        def focused() -> Any:
            return driver.switch_to.active_element

        def tab_to(selector: str) -> None:
            for _ in range(60):
                press(driver, Keys.TAB)
                if driver.execute_script("return document.activeElement.matches(arguments[0])", selector):
                    outline = focused().value_of_css_property("outline-style")
                    assert outline not in ("none", ""), selector  # it is seen where one is
                    return
            pytest.fail(f"no way to {selector}")

        tab_to(".skip")
        assert focused().location["x"] >= 0
        tab_to(".runs input")
        press(driver, Keys.SPACE)
        until(lambda: driver.find_element(CSS, "#ticked").is_displayed())
        tab_to(".runs tr:nth-child(2) input")
        press(driver, Keys.SPACE)
        until(lambda: driver.find_element(CSS, "#ticked button").is_enabled())
        tab_to("#ticked button")
        press(driver, Keys.ENTER)
        until(lambda: "2 runs on blocks" in text(driver))
        tab_to("#chart-validation")
        press(driver, Keys.ARROW_LEFT)
        assert text(driver, ".told").startswith("epoch 2: ") and "20 %" in text(driver, ".told")
        driver.execute_script("sessionStorage.clear()")
        look(page)
        tab_to("a[id^=run-]")
        press(driver, Keys.ENTER)
        until(lambda: "What crossed" in text(driver))
        tab_to("summary")
        press(driver, Keys.ENTER)
        assert driver.find_element(CSS, "details[open]")
        look(page, "/ledger?folder=one")
        tab_to("select[name=kind]")
        press(driver, "c", Keys.ENTER)
        tab_to(".filter button")
        press(driver, Keys.ENTER)
        until(lambda: "kind=schema" in driver.current_url)


@pytest.mark.parametrize("width", [320, 360, 420, 700, 840, 930, 1000])
def test_no_window_is_too_narrow(width: int, look: Any, tmp_path: Path) -> None:
    for name in ("one", "two", "a-run-whose-name-is-long-" * 4):
        scored_run(tmp_path / name, notes=["n" * 300])
    begun(tmp_path / "going", epoch=1234, epochs=40_000)
    with served(tmp_path, "--allow-start") as page:
        for path in (*BASIC, "/start", "/run?folder=going", "/nowhere"):
            driver = look(page, path)
            window(driver, width)
            wide = driver.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
            assert wide[0] <= wide[1] == width, path
            cells = driver.execute_script(
                "return [...document.querySelectorAll('td')].filter((each) => each.scrollWidth > each.clientWidth + 1)"
                ".map((each) => each.textContent)"
            )
            assert cells == [], path


def test_long_names_of_methods_are_not_cut_into_letters(look: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        scored_run(tmp_path / name, method="sync-sgd+fwd-bwd-le")
    begun(tmp_path / "going", epoch=1234, epochs=40_000)
    with served(tmp_path) as page:
        driver = look(page)
        heights = driver.execute_script(
            "return [...document.querySelectorAll('.runs td[data-label=Method]')].map((each) => each.clientHeight)"
        )
        assert len(heights) == 3 and max(heights) < 65  # two lines at most


def test_five_hundred_runs(look: Any, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    for number in range(500):
        begun(tmp_path / f"run-{number:03d}", updated="2020-01-01T00:00:00+00:00")
    with served(tmp_path) as page:
        driver, seen = look(page), set[str]()
        for number in range(10):
            names = [row.get_attribute("data-name") for row in driver.find_elements(CSS, ".runs tbody tr")]
            assert len(names) == 50
            seen |= set(names)
            if number < 9:
                driver.find_element(CSS, "[rel=next]").click()
        assert len(seen) == 500
        driver.find_element("name", "q").send_keys("run-49", Keys.ENTER)
        until(lambda: "10 runs of 500" in text(driver))


def test_a_folder_that_is_damaged_or_being_written_is_shown_as_such(look: Any, tmp_path: Path) -> None:
    for name, file in (("one", "metrics.json"), ("two", "ledger.parquet")):
        whole = (scored_run(tmp_path / name) / file).read_bytes()
        (tmp_path / name / file).write_bytes(whole[: len(whole) // 2])
    with served(tmp_path) as page:
        driver = look(page)
        assert "'metrics.json' is damaged, or being written" in text(driver, "tr[data-name=one]")
        look(page, "/run?folder=two")
        assert "'ledger.parquet' is damaged" in text(driver) and driver.find_elements(CSS, "#chart-validation")
        (tmp_path / "two" / "ledger.parquet").write_bytes(whole)  # now it is written
        until(lambda: driver.find_elements(CSS, ".federation"))


def test_a_wrong_token_opens_nothing(driver: Any, tmp_path: Path) -> None:
    scored_run(tmp_path / "one")
    with served(tmp_path) as page:
        for address in (f"{page.base}/?token=guess", page.base, f"{page.base}/run?folder=one"):
            driver.get(address)
            assert "has printed" in text(driver, "body") and "fedavg" not in driver.page_source


def test_two_pages_are_open_in_one_browser(driver: Any, tmp_path: Path) -> None:
    for name in ("one", "two"):
        scored_run(tmp_path / name / f"run-of-{name}")
    with served(tmp_path / "one") as one, served(tmp_path / "two") as two:
        driver.get(one.address)
        until(lambda: "run-of-one" in driver.page_source)
        driver.get(f"{two.base}/")
        assert "has printed" in text(driver, "body")  # the cookie of the other page does not open it
        driver.execute_script("document.cookie = 'else={\"a\": 1}; path=/'")  # of another server of this machine
        driver.get(two.address)
        until(lambda: "run-of-two" in driver.page_source)
        driver.get(f"{one.base}/")
        assert "run-of-one" in driver.page_source


@contextmanager
def site(content: str) -> Iterator[int]:
    """Another site on this machine; its port."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "evil.example"])
def test_another_site_starts_nothing_and_reads_nothing(host: str, look: Any, tmp_path: Path) -> None:
    scored_run(tmp_path / "secret-run")
    with served(tmp_path, "--allow-start") as page:
        driver = look(page)  # the browser has the cookie
        theirs = f"""<form method=post action="{page.base}/start"><input name=csrf value=x>
            <input name=data value=blocks><input name=method value=fedavg><input name=name value=theirs>
            </form><script>
            fetch("{page.base}/", {{credentials: "include"}}).then((answer) => answer.text())
                .then((told) => document.title = "read " + told, () => document.title = "kept from it")
            </script>"""
        with site(theirs) as port:
            driver.get(f"http://{host}:{port}/")
            until(lambda: driver.title)
            assert driver.title == "kept from it"
            driver.execute_script("document.forms[0].submit()")
            until(lambda: driver.current_url.startswith(page.base))
            assert "another site" in text(driver, "body") and "secret-run" not in driver.page_source
    assert [path.name for path in tmp_path.iterdir()] == ["secret-run"]


def test_a_name_that_is_made_to_point_here_opens_nothing(look: Any, tmp_path: Path) -> None:
    """DNS rebinding: the browser believes to be at another site, and the request comes here."""
    scored_run(tmp_path / "secret-run")
    with served(tmp_path) as page:
        driver = look(page)
        driver.get(f"http://evil.example:{page.port}/")
        assert "to no other name" in text(driver, "body") and "secret-run" not in driver.page_source
