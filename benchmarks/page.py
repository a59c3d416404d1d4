"""``python -m benchmarks.page [RUNS]``: how soon a browser shows the list of so many runs, in a page just started.

Needs chromium, chromedriver and selenium. Run folders are copies of one small run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers.browser import chromium, served, until

SMALL = ("--data", "blocks", "--silos", "4", "--epochs", "5", "--set", "data.nodes=400", "--set", "data.degree=4")


def main(count: int) -> None:
    """Print milliseconds from the request to the answer, and to the first paint, of a first and a second look."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        first = root / "run-0"
        command = [sys.executable, "-m", "isthmus", "run", *SMALL, "--out", str(first)]
        subprocess.run(command, check=True, capture_output=True)
        for number in range(1, count):
            shutil.copytree(first, root / f"run-{number}")
        driver = chromium(Path(folder) / "profile")
        with served(root) as page:
            for look, address in (("first", page.address), ("second", page.base)):
                driver.get(address)
                until(lambda: driver.find_elements("css selector", ".runs"))  # the first address leads on to the list
                answer, paint = driver.execute_async_script(TIMES)
                print(f"{count} runs, {look} look: answer {answer:.0f} ms, first paint {paint:.0f} ms")
        driver.quit()


TIMES = """
const done = arguments[0], times = () => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  if (!paint) return setTimeout(times, 50);
  done([performance.getEntriesByType("navigation")[0].responseEnd, paint.startTime]);
};
times();
"""

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
