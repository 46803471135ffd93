"""A headless chromium by its DevTools protocol, over a pair of pipes: no port, and nothing but Python.

    with Browser(folder) as browser:
        browser.go("http://127.0.0.1:7789/")
        browser.run("document.title")
"""

import base64
import json
import os
import shutil
import subprocess
import time


class Browser:
    def __init__(self, folder, *options):
        program = next(filter(None, map(shutil.which, ["chromium", "chromium-browser", "google-chrome"])))
        to_browser, self.write = os.pipe()
        self.read, from_browser = os.pipe()

        # DevTools reads descriptor 3 and writes descriptor 4.
        def descriptors():
            low = [os.dup2(to_browser, 30), os.dup2(from_browser, 31)]
            for number, descriptor in zip((3, 4), low):
                os.dup2(descriptor, number)

        arguments = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        arguments += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
        arguments += ["--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={folder}/profile"]
        arguments += [*options, "about:blank"]
        with open(f"{folder}/browser.log", "wb") as log:
            self.process = subprocess.Popen([program, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            close_fds=False, preexec_fn=descriptors)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer, self.number, self.session, self.faults = b"", 0, None, []
        targets = self.call("Target.getTargets")["targetInfos"]
        target = next(target for target in targets if target["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self.session = attached["sessionId"]
        for domain in ["Page", "Runtime", "Network", "Log"]:
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def message(self):
        while b"\0" not in self.buffer:
            more = os.read(self.read, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.buffer += more
        text, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(text)
        # What a page does that its policy forbids, and what its script does not catch.
        if message.get("method") == "Log.entryAdded" and message["params"]["entry"]["source"] == "security":
            self.faults.append(message["params"]["entry"]["text"])
        if message.get("method") == "Runtime.exceptionThrown":
            self.faults.append(json.dumps(message["params"]))
        return message

    def call(self, method, **parameters):
        self.number += 1
        request = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write, json.dumps(request).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def run(self, script):
        """The value of an expression on the page."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def until(self, script, seconds=10):
        """Waits until an expression on the page is true."""
        end = time.monotonic() + seconds
        while True:
            try:
                if self.run(script):
                    return
            except RuntimeError as error:  # between two pages
                if time.monotonic() > end:
                    raise error
            if time.monotonic() > end:
                raise RuntimeError(f"timed out: {script}; the page: {self.run('document.body.innerText')[:2000]}")
            time.sleep(0.05)

    def go(self, address):
        self.call("Page.navigate", url=address)
        here = json.dumps(address.split("#")[0])
        self.until(f"document.readyState === 'complete' && location.href.startsWith({here})")

    def click(self, selector):
        """Clicks, and waits for the page that it leads to."""
        self.run("window.left = true")
        self.run(f"document.querySelector({json.dumps(selector)}).click()")
        self.until("!window.left && document.readyState === 'complete'")

    def fill(self, selector, text):
        self.run(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(text)}")

    def look(self, width, height=1000, scheme="light", scale=1):
        """Has the window as wide, and the theme."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale,
                  mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path, whole=False):
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture))
