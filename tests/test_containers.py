#!/usr/bin/python3
"""Runs the tests on several machines (tests/containers, pytest): real systemd, real networks, in containers.

    BUILD=build tests/test_containers.py [OPTIONS OF PYTEST]     e.g. -k partition

Prints a line for the setting up, one for each scenario with its time, and what went wrong; journals of scenarios that failed are in
BUILD/containers. Whatever happens, nothing is left on the machine but BUILD/containers.
"""

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

FILES = ["test_processes.py", "test_network.py", "test_stragglers.py", "test_shapes.py"]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def say(verdict, what, seconds, more=""):
    print(f"  {verdict:6} {what:56} {seconds:.1f} s{more}", flush=True)


class Scenarios:
    """The plugin that gives the tests their nodes and tells how each went."""

    def __init__(self, lab):
        self.lab = lab

    @pytest.fixture
    def fleet(self, request):
        """A function that makes the Fleet of this scenario."""
        return lambda *arguments, **settings: Fleet(self.lab, request.node.name.removeprefix("test_"), *arguments, **settings)

    @staticmethod
    def pytest_report_teststatus(report):
        return (report.outcome, "", "") if report.when == "call" else None

    def pytest_runtest_logreport(self, report):
        if report.when != "call":
            return
        name = report.nodeid.split("::test_")[-1]
        with self.capture.global_and_fixture_disabled():
            say({"passed": "PASS", "failed": "FAIL"}.get(report.outcome, "SKIP"), name, report.duration,
                f"; journals in {self.lab.kept / name}" if report.failed else "")

    def pytest_configure(self, config):
        self.capture = config.pluginmanager.getplugin("capturemanager")


def interrupt(number, frame):
    raise KeyboardInterrupt


def main():
    for number in SIGNALS:
        signal.signal(number, interrupt)
    lab = Netlab(os.environ.get("BUILD", "build"))
    status = 1
    try:
        begin = time.monotonic()
        lab.open()
        say("", "containers: image and network", time.monotonic() - begin)
        status = pytest.main(["-q", "--tb=short", "-p", "no:cacheprovider", "-o", "console_output_style=none",
                              *(str(FOLDER / file) for file in FILES), *sys.argv[1:]], plugins=[Scenarios(lab)])
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
    return status


if __name__ == "__main__":
    sys.exit(main())
