#!/usr/bin/python3
"""Runs the tests of the whole system (tests/system, pytest), one after the other: they share a machine's time."""

import pathlib
import sys

import pytest

sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", str(pathlib.Path(__file__).parent / "system"), *sys.argv[1:]]))
