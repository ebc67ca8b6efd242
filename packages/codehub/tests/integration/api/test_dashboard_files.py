"""The dashboard's files as they are served: a strict policy, kept for ever under their version, nothing from elsewhere."""

from __future__ import annotations

import re

from codehub.web.assets import assets
from testing.codehub.api import Api


async def test_the_page_and_all_its_files_are_served_under_a_policy_that_lets_nothing_else_run(api: Api) -> None:
    browser = api.client()
    page = await browser.get("/")
    addresses = re.findall(r'(?:src|href)="(assets/[^"]+)"', page.text)
    assert len(addresses) == len(set(addresses)) + 1, "main.js is preloaded and run; everything else is named once"
    for answer in [page, *[await browser.get(f"/{address}") for address in addresses]]:
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_files_are_kept_for_ever_and_the_page_is_asked_for_each_time(api: Api) -> None:
    browser = api.client()
    page = await browser.get("/")
    assert page.headers["cache-control"] == "no-cache"
    again = await browser.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    file = await browser.get(f"/assets/{assets().version}/main.js")
    assert "immutable" in file.headers["cache-control"]
    other = await browser.get("/assets/0123456789abcdef/main.js")
    assert (other.status_code, other.headers["cache-control"]) == (200, "no-cache")


async def test_files_are_compressed_for_those_who_take_it(api: Api) -> None:
    browser = api.client()
    address = f"/assets/{assets().version}/style.css"
    packed = await browser.get(address, headers={"accept-encoding": "gzip"})
    plain = await browser.get(address, headers={"accept-encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text == plain.text


async def test_nothing_outside_the_folder_is_served(api: Api) -> None:
    browser = api.client()
    for path in ("routes.py", "../routes.py", "..%2froutes.py", "%2e%2e/routes.py", "views", ""):
        answer = await browser.get(f"/assets/{assets().version}/{path}")
        assert answer.status_code == 404, path


def test_no_file_names_another_host_or_makes_markup_of_text() -> None:
    for name, file in assets().files.items():
        text = file.body.decode().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|on\w+=\"", text
        ), name
