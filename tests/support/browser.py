# SPDX-License-Identifier: Apache-2.0
"""Chromium, and hloenv explore as a program of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import hloenv

# Drawn by the processor: the machine need not have a graphics card.
ARGUMENTS = (
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
)
TIMEOUT_MS = 120_000


@contextlib.contextmanager
def open_browser():
    """Chromium of the system, driven by playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=list(ARGUMENTS)
        )
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def open_page(browser, *, offline=False, **options):
    """A page whose errors fail the test."""
    context = browser.new_context(viewport={"width": 1440, "height": 860}, **options)
    context.set_default_timeout(TIMEOUT_MS)
    context.set_offline(offline)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.requests_seen = requests
    try:
        yield page
        assert errors == []
    finally:
        context.close()


def wait_until(page, expression: str) -> None:
    """Waits for a JavaScript expression; the page's policy forbids it to evaluate."""
    deadline = time.monotonic() + TIMEOUT_MS / 1000
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, expression
        page.wait_for_timeout(50)


@contextlib.contextmanager
def explore(
    *words: str, env: dict[str, str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Runs `hloenv explore`; yields the URL and the process."""
    package = str(Path(hloenv.__file__).parent.parent)
    process = subprocess.Popen(
        [sys.executable, "-m", "hloenv", "explore", *words, "--no-open", "--json"],
        env={**os.environ, "PYTHONPATH": package, **(env or {})},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())["url"], process
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()
