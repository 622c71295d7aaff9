#!/usr/bin/python3
"""Runs the tests of the whole system (tests/system, pytest), one after the other: they share a machine's time."""

import pathlib
import sys

import pytest

FILES = ["test_rounds.py", "test_methods.py", "test_control.py", "test_faults.py", "test_strangers.py", "test_keys.py", "test_rights.py",
         "test_floods.py", "test_service.py", "test_editctl.py", "test_editctl_mesh.py", "test_trace.py", "test_trouble.py", "test_mesh.py",
         "test_mesh_checkpoint.py", "test_restart.py", "test_members.py", "test_views.py"]
FOLDER = pathlib.Path(__file__).parent / "system"

sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", *(str(FOLDER / file) for file in FILES), *sys.argv[1:]]))
