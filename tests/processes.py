"""Processes of this machine, for tests of what a program leaves behind."""

import pathlib


def processes_with(text):
    """Command lines of all running processes that hold text."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # it has just ended
        if text in line:
            found.append(line)
    return found
