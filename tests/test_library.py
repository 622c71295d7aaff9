#!/usr/bin/env python3
"""libedit-worker.so as a stranger's program meets it: what it exports and what it needs."""

import os
import re
import subprocess
import unittest

BUILD = os.path.abspath(os.environ.get("BUILD", "build"))
LIBRARY = os.path.join(BUILD, "libedit-worker.so")
HEADER = "worker/edit_worker.h"
SANFLAGS = os.environ.get("SANFLAGS", "").split()

def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, check=True, **more).stdout


class Library(unittest.TestCase):
    def test_exports_the_header_and_nothing_else(self):
        with open(HEADER, encoding="utf-8") as file:
            header = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        promised = set(re.findall(r"\b(edit_worker_\w+)\(", header))
        exported = {line.split()[-1] for line in run("nm", "-D", "--defined-only", LIBRARY).splitlines()}
        self.assertIn("edit_worker_attach", promised)
        self.assertEqual(exported, promised)

    @unittest.skipIf(SANFLAGS and any(SANFLAGS), "sanitizers bring libraries of their own")
    def test_needs_only_libc_and_xxhash(self):
        needed = re.findall(r"NEEDED.*\[(.*)\]", run("readelf", "-d", LIBRARY))
        self.assertEqual({name.split(".so")[0] for name in needed} - {"libc", "libxxhash"}, set())

    @unittest.skipIf(SANFLAGS and any(SANFLAGS), "sanitizers bring functions of their own")
    def test_nothing_of_ours_forks(self):
        # A BLAS that has started threads does not survive it, and a daemon must not leave children.
        forks = {"fork", "vfork", "clone", "system", "popen", "posix_spawn", "posix_spawnp", "daemon"}
        for name in ("editd", "edit-worker", "editctl", "edit-sim", "libedit-worker.so"):
            used = {line.split()[-1].split("@")[0] for line in run("nm", "-D", "--undefined-only",
                                                                   os.path.join(BUILD, name)).splitlines()}
            self.assertIn("memcpy", used)
            self.assertEqual(used & forks, set(), name)

    def test_header_is_pedantic_c_and_cpp(self):
        for compiler, language in (("gcc", "c"), ("clang++", "c++")):
            run(compiler, "-x", language, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only", HEADER)


if __name__ == "__main__":
    unittest.main()
