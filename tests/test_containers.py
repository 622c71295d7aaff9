#!/usr/bin/python3
"""Runs the tests on several machines (tests/containers, pytest): real systemd, real networks, in containers.

    BUILD=build tests/test_containers.py [OPTIONS OF PYTEST]     e.g. -k partition

Prints a line for the setting up, one for each scenario with its time, and what went wrong; journals of scenarios that failed are in
BUILD/containers/SCENARIO. Whatever happens, nothing is left on the machine but BUILD/containers.
"""

import contextlib
import os
import pathlib
import signal
import sys
import time

import pytest

FOLDER = pathlib.Path(__file__).parent / "containers"
sys.path.insert(0, str(FOLDER))
from fleet import Fleet  # noqa: E402
from netlab import LabError, Netlab  # noqa: E402

FILES = ["test_processes.py", "test_members.py", "test_network.py", "test_stragglers.py", "test_shapes.py"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PYTEST = ["-q", "--tb=short", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-o", "console_output_style=none"]


def say(verdict, what, seconds, more=""):
    print(f"  {verdict:6} {what:60} {seconds:5.1f} s{more}", flush=True)


class Scenarios:
    """The plugin that gives the tests their nodes and tells how each went. A ring of four is booted once for all scenarios that leave
    it as they found it; they come first. One that fails takes it along, and the next boots another."""

    def __init__(self, lab):
        self.lab = lab
        self.shared = None
        self.seconds = {"booting": 0.0, "scenarios": 0.0}

    @pytest.fixture
    def ring(self, request):
        """A function, as `with ring() as r`: the ring of four, training, with the default settings. errors, maybe: what the scenario
        leaves in journals, as Fleet.check takes it."""
        @contextlib.contextmanager
        def scenario(errors=(), maybe=()):
            with self.kept_if_wrong(request, lambda: self.shared):
                self.shared.begin()
                yield self.shared
                self.shared.check(errors, maybe)

        if self.shared is None:
            begin = time.monotonic()
            self.shared = Fleet(self.lab)
            with self.kept_if_wrong(request, lambda: self.shared):
                self.shared.boot()
                self.shared.start()
            self.note_boot("four machines for many scenarios", time.monotonic() - begin)
        return scenario

    @pytest.fixture
    def fleet(self, request):
        """A function, as `with fleet(8, method="a-edit") as f`: nodes of its own, configured, without anything started. errors: as above."""
        @contextlib.contextmanager
        def scenario(*arguments, errors=(), maybe=(), **settings):
            self.end_shared()
            own = Fleet(self.lab, *arguments, **settings)
            with self.kept_if_wrong(request, lambda: own):
                own.boot()
                self.seconds["booting"] += own.boot_seconds
                request.node.boot_seconds = own.boot_seconds
                own.begin()
                yield own
                own.check(errors, maybe)
                own.end()

        return scenario

    @contextlib.contextmanager
    def kept_if_wrong(self, request, fleet):
        """Journals stay and the nodes go if what is inside goes wrong."""
        try:
            yield
        except BaseException:
            fleet().keep_journals(self.folder(request.node.name))
            fleet().end()
            self.shared = None
            raise

    def end_shared(self):
        if self.shared:
            self.shared.end()
            self.shared = None

    def folder(self, name):
        return self.lab.kept / name.removeprefix("test_")

    # ---- What pytest asks ----

    def pytest_configure(self, config):
        self.capture = config.pluginmanager.getplugin("capturemanager")

    def pytest_collection_modifyitems(self, items):
        items.sort(key=lambda item: "ring" not in item.fixturenames)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item):
        report = (yield).get_result()
        report.boot_seconds = getattr(item, "boot_seconds", 0)

    @staticmethod
    def pytest_report_teststatus(report):
        return (report.outcome, "", "") if report.when == "call" or report.failed else None

    def pytest_runtest_logreport(self, report):
        if report.when != "call" and not report.failed:
            return
        seconds = report.duration - report.boot_seconds
        self.seconds["scenarios"] += seconds
        name = report.nodeid.split("::")[-1]
        more = f" + {report.boot_seconds:.1f} s to boot" if report.boot_seconds else ""
        with self.capture.global_and_fixture_disabled():
            say({"passed": "PASS", "failed": "FAIL"}.get(report.outcome, "SKIP"), name.removeprefix("test_"), seconds,
                more + (f"; journals in {self.folder(name)}" if report.failed else ""))

    def note_boot(self, what, seconds):
        self.seconds["booting"] += seconds
        with self.capture.global_and_fixture_disabled():
            say("", what, seconds)


def interrupt(number, frame):
    raise KeyboardInterrupt


def main():
    for number in SIGNALS:
        signal.signal(number, interrupt)
    lab = Netlab(os.environ.get("BUILD", "build"))
    scenarios = Scenarios(lab)
    status = 1
    begin = time.monotonic()
    try:
        lab.open()
        say("", "containers: image and network", time.monotonic() - begin)
        status = pytest.main([*PYTEST, *(str(FOLDER / name) for name in FILES), *sys.argv[1:]], plugins=[scenarios])
        scenarios.end_shared()
    except LabError as error:
        print(f"containers: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("containers: stopped by a signal", file=sys.stderr)
        status = 2
    finally:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        try:
            lab.close()
        except LabError as error:
            print(f"containers: {error}", file=sys.stderr)
            status = 1
    print(f"containers: {time.monotonic() - begin:.0f} s, of it " +
          ", ".join(f"{what} {seconds:.0f} s" for what, seconds in scenarios.seconds.items()))
    return status


if __name__ == "__main__":
    sys.exit(main())
