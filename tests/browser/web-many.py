"""What web-many.sh does in the browser. Arguments: the page's address. Environment: FOLDER with a token, CLIENTS."""

import os
import statistics
import sys

from browser import Browser

page, folder, clients = sys.argv[1], os.environ["FOLDER"], int(os.environ["CLIENTS"])
NAMES = "[...document.querySelectorAll('tbody th')].map(name => name.innerText)"


def expect(what, expected, seen):
    print(f"--- {what}: {seen}", flush=True)
    if seen != expected:
        sys.exit(f"expected {expected}")


with Browser(folder) as browser:
    browser.look(1280)
    browser.go(f"{page}/login")
    browser.fill("input[name=token]", open(f"{folder}/reader").read().strip())
    browser.click(".login button")
    last = -(-clients // 50)
    browser.go(f"{page}/tunnels/wg1")
    expect("clients", f"{clients} peers", browser.run("document.querySelector('#peers p').innerText"))
    expect("the first", "client-00001", browser.run(NAMES)[0])
    expect("on a page", 50, len(browser.run(NAMES)))
    browser.click("a[rel=next]")
    expect("the first of the next page", "client-00051", browser.run(NAMES)[0])
    browser.go(f"{page}/tunnels/wg1?page={last}")
    expect("the last", f"client-{clients:05}", browser.run(NAMES)[-1])
    expect("the page", f"Page {last} of {last}", browser.run("document.querySelector('.pages span').innerText"))
    browser.go(f"{page}/tunnels/wg1?sort=name&reverse")
    expect("the first in the opposite order", f"client-{clients:05}", browser.run(NAMES)[0])
    browser.go(f"{page}/tunnels/wg1")
    browser.fill("input[type=search]", "10.71.3.7")
    browser.click("form.search button")
    found = browser.run(NAMES)
    expect("found by an address", True, "client-00506" in found and len(found) < 50)

    def paints(path):
        times = []
        for _ in range(9):
            browser.go("about:blank")
            browser.go(page + path)
            browser.until("performance.getEntriesByName('first-contentful-paint').length", 5)
            times.append(browser.run("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        return f"{statistics.median(times):.0f} ms ({min(times):.0f} to {max(times):.0f})"

    print(f"figures: first paint of the tunnels {paints('/')}, of the clients {paints('/tunnels/wg1')}")
    expect("faults", [], browser.faults)
