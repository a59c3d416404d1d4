"""A real Chromium, and the page that it looks at, served by a process of its own."""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)  # fmt: skip


@dataclass(frozen=True)
class Served:
    """A page that is served: its address with the token, and without."""

    address: str

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])


@contextmanager
def served(root: Path, *options: str) -> Iterator[Served]:
    """``isthmus page ROOT`` while the block runs."""
    command = [sys.executable, "-m", "isthmus", "page", str(root), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Served(process.stdout.readline().strip())
            process.terminate()
            process.wait(20)
        finally:
            process.kill()


def chromium(profile: Path) -> Any:
    """A Chromium with a new profile; the test is skipped where there is none, or nothing to drive it."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("no chromium and chromedriver here (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))


def until(told: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until something is true; its value."""
    from selenium.common.exceptions import StaleElementReferenceException

    end = time.monotonic() + seconds
    while True:
        try:
            found = told()
        except StaleElementReferenceException:  # the page has renewed what was looked at
            found = None
        if found:
            return found
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.1)


def window(driver: Any, width: int, height: int = 900, scheme: str = "light") -> None:
    """Give the page a width and a colour scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
