"""The usage page: who may read it, and what a browser shows. Screenshots are saved in `artifacts/usage`."""

from __future__ import annotations

import asyncio
import os
import random
import re
import time
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from playwright.async_api import ConsoleMessage, Error, Page, Route
from tests.frontends.http.servers import local_server
from tests.storage.stored import open_store, write_rows
from tests.vscode.browser import CHROMIUM, ROOT, open_page

from tollbridge.config.schema import Settings
from tollbridge.engine import Engine
from tollbridge.frontends.http.access import ServerOptions
from tollbridge.frontends.http.server import run_server
from tollbridge.frontends.usage_page import read_page
from tollbridge.storage.reports import BudgetState, CacheMiss
from tollbridge.storage.rows import UsageRow
from tollbridge.testing.server import Gateway
from tollbridge.tokens.records import LedgerChanges
from tollbridge.transport.files import database_file
from tollbridge.types.events import Usage

TOKEN = "token-of-the-test"
ARTIFACTS = ROOT / "artifacts" / "usage"
MISSING = "Chromium is not installed (Debian: apt-get install chromium): the browser tests were NOT run"
MODELS = ("anthropic/claude-sonnet-4.5", "openai/gpt-5.4", "google/gemini-3-pro", "deepseek/deepseek-v4")
without_browser = pytest.mark.skipif(CHROMIUM is None and os.environ.get("CI") != "true", reason=MISSING)


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOLLBRIDGE_DATA_DIR", str(tmp_path / "data"))
    return database_file()


@asynccontextmanager
async def page_server(token: str | None = TOKEN) -> AsyncIterator[str]:
    async with (
        Engine.open(Settings()) as engine,
        run_server(engine, ServerOptions(token=token, usage_only=True)) as url,
    ):
        yield url


def make_rows(count: int, days: int, seed: int = 1) -> Iterator[UsageRow]:
    """Return attempts of the last days, in the order in which they began."""
    source = random.Random(seed)
    now = time.time()
    for started in sorted(now - source.random() * days * 86_400 for _ in range(count)):
        turn = f"{source.getrandbits(128):032x}"
        prompt, output = source.randrange(1_000, 60_000), source.randrange(10, 3_000)
        cost = Decimal(prompt + 5 * output) * Decimal("0.000003")
        yield UsageRow(
            key=turn,
            turn=turn,
            started=started,
            model=source.choices(MODELS, (4, 3, 2, 1))[0],
            account="work",
            outcome=source.choices(("completed", "failed", "cancelled"), (95, 3, 2))[0],
            usage=Usage(prompt, output, prompt + output, source.randrange(prompt)),
            duration=source.random() * 20,
            first=source.random(),
            conversation=f"conversation-{source.randrange(count // 20 + 1)}",
            cost=cost,
            billed=cost * Decimal("1.02") if source.random() < 0.5 else None,
        )


def put(path: Path, rows: Iterator[UsageRow]) -> None:
    write_rows(path, *rows)


# --- The routes ---


async def test_the_page_has_no_figures_and_loads_nothing() -> None:
    async with Gateway() as gateway, local_server(gateway.url, token=TOKEN) as server:
        async with server.http.get(f"{server.url}/") as response:
            assert response.status == 200
            assert response.content_type == "text/html"
            assert "frame-ancestors" in response.headers["Content-Security-Policy"]
            text = await response.text()
        assert text == read_page()
        async with server.http.head(f"{server.url}/") as response:
            assert response.status == 200
    assert re.search(
        r'http-equiv="Content-Security-Policy" content="default-src \'none\'; script-src \'sha256-', text
    )
    assert "unsafe" not in text[: text.index("<style>")]
    assert not re.search(r"<(?:script|img|iframe)[^>]* src=|<link[^>]* href=\"(?!data:,)", text)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Authorization": f"Bearer {TOKEN}"}, 200),
        ({}, 401),
        ({"Authorization": f"Bearer {TOKEN}", "Host": "evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Origin": "http://evil.example"}, 403),
        ({"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": "cross-site"}, 403),
    ],
)
async def test_figures_need_the_token_and_a_request_of_this_computer(
    headers: dict[str, str], status: int
) -> None:
    async with (
        Gateway() as gateway,
        local_server(gateway.url, token=TOKEN) as server,
        server.http.get(f"{server.url}/usage.json", headers=headers) as response,
    ):
        assert response.status == status


async def test_figures_are_sent_again_only_after_they_changed(database: Path) -> None:
    put(database, make_rows(3, 1))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with page_server() as url, aiohttp.ClientSession(headers=headers) as http:

        async def read(**query: str) -> Any:
            async with http.get(f"{url}/usage.json", params=query) as response:
                assert response.headers["Cache-Control"] == "no-store"
                return await response.json()

        report = await read(days="7")
        assert report["total"]["requests"] == 3
        assert await read(days="7", revision=report["revision"]) == {"revision": report["revision"]}
        put(database, make_rows(2, 1, seed=2))
        assert (await read(days="7", revision=report["revision"]))["total"]["requests"] == 5
        for days in ("0", "3651", "-1", "x", "9" * 5_000, "0" * 8 + "1" + "0" * 5_000):
            async with http.get(f"{url}/usage.json", params={"days": days}) as response:
                assert response.status == 400


@pytest.mark.slow
def test_the_wheel_contains_the_page(tmp_path: Path) -> None:
    from hatchling.builders.wheel import WheelBuilder

    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("tollbridge/frontends/usage_page/usage.html").decode() == read_page()


# --- In a browser ---


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    assert CHROMIUM is not None, MISSING
    async with open_page(tmp_path / "browser") as page:
        problems: list[str] = []

        def note_message(message: ConsoleMessage) -> None:
            # The browser itself reports responses with an error status.
            if message.type in ("error", "warning") and not message.text.startswith(
                "Failed to load resource"
            ):
                problems.append(message.text)

        def note_error(error: Error) -> None:
            problems.append(str(error))

        page.on("console", note_message)
        page.on("pageerror", note_error)
        yield page
        assert not problems


async def show(page: Page, url: str, days: int = 90) -> float:
    """Open the page, wait until it is drawn, and return how many milliseconds that took."""
    await page.goto("about:blank")
    await page.goto(f"{url}/#token={TOKEN}&days={days}")
    await page.locator("#status", has_text="Updated").wait_for()
    return float(await page.evaluate("() => performance.getEntriesByName('drawn')[0].startTime"))


@pytest.mark.slow
@without_browser
@pytest.mark.timeout(240)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_a_hundred_thousand_rows_are_drawn(page: Page, database: Path, scheme: Any) -> None:
    """The time from opening to drawn is saved with the screenshot: less than a second on an idle machine."""
    await asyncio.to_thread(put, database, make_rows(100_000, 89))
    add_estimates(database)
    await page.emulate_media(color_scheme=scheme)
    async with page_server() as url:
        milliseconds = await show(page, url)
        await take_screenshot(page, scheme)
        assert await page.locator("#sections canvas").count() == 3
        assert "100,000" in await page.locator("dl").first.inner_text()
    (ARTIFACTS / f"{scheme}.txt").write_text(f"{milliseconds:.0f} ms from opening to drawn\n")


def add_estimates(path: Path) -> None:
    changes, source = LedgerChanges(), random.Random(3)
    for number in range(120):
        actual = source.randrange(1_000, 20_000)
        estimate = round(actual * (1 + source.gauss(0, 0.02)))
        changes.outcomes.append((MODELS[number % 2], "hybrid", estimate + 300, estimate, actual, ""))
    with open_store(path) as store:
        store.tokens.commit(changes)


async def take_screenshot(page: Page, name: str) -> None:
    ARTIFACTS.mkdir(parents=True, exist_ok=True)
    await page.screenshot(path=ARTIFACTS / f"{name}.png", full_page=True)


@pytest.mark.slow
@without_browser
async def test_the_page_shows_new_requests_without_a_reload(page: Page, database: Path) -> None:
    put(database, make_rows(3, 1))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    async with page_server() as url:
        await show(page, url, 7)
        tiles = page.locator("dl").first
        assert re.search(r"Requests\s+3\b", await tiles.inner_text())
        put(database, make_rows(2, 1, seed=2))
        await page.locator("dl strong", has_text=re.compile("^5$")).wait_for(timeout=20_000)
    assert {request.partition("?")[0] for request in requests} <= {
        "about:blank",
        f"{url}/",
        f"{url}/usage.json",
    }


@pytest.mark.slow
@without_browser
async def test_the_page_can_be_used_with_the_keyboard(page: Page, database: Path) -> None:
    put(database, make_rows(50, 6))
    async with page_server() as url:
        await show(page, url, 7)
        await page.keyboard.press("Tab")
        assert await page.evaluate("() => document.activeElement.value") == "7"
        async with page.expect_response(lambda response: "days=30" in response.url):
            await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Tab")
        focused = page.locator(":focus")
        assert (await focused.get_attribute("aria-label") or "").startswith("Cost per day, ")
        await page.keyboard.press("ArrowLeft")
        today = time.strftime("%Y-%m-%d")
        assert (await focused.get_attribute("aria-label") or "").startswith(f"{today}: ")
        await page.keyboard.press("Tab")
        assert await focused.inner_text() == "Cost per day as a table"
        await page.keyboard.press("Enter")
        cell = page.get_by_role("region", name="Cost per day").get_by_role("rowheader", name=today)
        await cell.wait_for()
        # A refresh keeps the table open and the focus where it is.
        put(database, make_rows(1, 1, seed=2))
        await page.locator("dl strong", has_text=re.compile("^51$")).wait_for(timeout=20_000)
        assert await cell.is_visible()
        assert await focused.inner_text() == "Cost per day as a table"


@pytest.mark.slow
@without_browser
async def test_names_of_models_are_shown_as_text(page: Page, database: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    rows = iter([UsageRow(started=time.time(), model=name, outcome="completed", usage=Usage(1, 1, 2))])
    put(database, rows)
    async with page_server() as url:
        await show(page, url, 7)
        assert await page.get_by_role("rowheader", name=name).inner_text() == name
        assert await page.locator("img").count() == 0


@pytest.mark.slow
@without_browser
async def test_a_page_without_the_token_says_so(page: Page, database: Path) -> None:
    async with page_server() as url:
        await page.goto(f"{url}/")
        await page.locator("#status.failed", has_text="#token=").wait_for()


@pytest.mark.slow
@without_browser
async def test_budgets_and_cache_misses_are_shown_if_the_report_has_them(page: Page, database: Path) -> None:
    put(database, make_rows(20, 3))
    budget = BudgetState(
        name="day", limit=Decimal("5"), spent=Decimal("4"), reserved=Decimal("0.5"), ends="2026-11-17"
    )
    miss = CacheMiss(
        started=time.time(), model="m", reason="The tool “search” was added.", expected=9_000, cached=0
    )
    extra = {"budgets": [budget], "misses": [miss]}

    async def add(route: Route) -> None:
        response = await route.fetch()
        body = {**await response.json(), **extra}
        await route.fulfill(response=response, body=msgspec.json.encode(body).decode())

    async with page_server() as url:
        await show(page, url, 7)
        assert not await page.get_by_role("heading", name="Budget").is_visible()
        assert "No prompt missed the cache." in await page.locator("main").inner_text()
        await page.route("**/usage.json*", add)
        await show(page, url, 7)
        text = await page.locator("main").inner_text()
        assert "$4.0000 of $5.0000 (90.0 %), $0.5000 reserved by running requests; until 2026-11-17" in text
        assert await page.get_by_role("meter", name="day").count() == 1
        row = page.get_by_role("region", name="Cache misses").get_by_role("row").nth(1)
        assert "The tool “search” was added." in await row.inner_text()
        assert "9,000" in await row.inner_text()
        await take_screenshot(page, "budgets")
        await page.unroute_all(behavior="ignoreErrors")
