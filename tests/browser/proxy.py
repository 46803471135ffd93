"""Loads a page of the tunnel's other end by a proxy; the arguments are the folder, the proxy and the page."""

import sys

from browser import Browser

folder, proxy, page = sys.argv[1:]
# Nothing goes past the proxy, not even to this host.
with Browser(folder, f"--proxy-server={proxy}", "--proxy-bypass-list=<-loopback>") as browser:
    browser.go(page)
    browser.until("document.title === 'loaded 300000'", 30)
    print(browser.run("document.getElementById('p').textContent"))
