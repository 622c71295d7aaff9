#!/usr/bin/env python3
"""Each law of tests/tidy.py can fail, and a tree that keeps them all has no fault."""

import os
import subprocess
import tempfile
import unittest

import tidy

MAKEFILE = """PLAIN := base event
CORE := vec ring
PROTO := codec mapping segment
DAEMON := control
LIBW := edit_worker
MODEL := llama
SIM := world
CTL := client
TESTS := test_ring
tools/draw.sh
"""


def header(path, body=""):
    guard = "EDIT_" + path.upper().replace("/", "_").replace(".", "_")
    return f"#ifndef {guard}\n#define {guard}\n\n/* Purpose. */\n\n{body}\n#endif\n"


def source(*headers, body=""):
    return "/* Purpose. */\n\n" + "".join(f"#include {name}\n" for name in headers) + body


GOOD = {
    "Makefile": MAKEFILE,
    "core/base.h": header("core/base.h", "#include <stdint.h>\n"),
    "core/event.h": header("core/event.h", '#include "core/base.h"\n'),
    "core/vec.h": header("core/vec.h", '#include "core/base.h"\n\n/* Adds. */\nint vec_add(int a,\n\t    int b);\n'),
    "core/vec.c": source('"core/vec.h"', body="int vec_add(int a,\n\t    int b)\n{\n\treturn a + b;\n}\n"),
    "core/ring.c": source('"core/event.h"', '"core/vec.h"', "<math.h>"),
    "proto/codec.c": source('"proto/peer.pb-c.h"', '"core/event.h"'),
    "proto/peer.proto": "// Purpose.\n",
    "proto/mapping.c": source("<sys/mman.h>"),
    "daemon/control.c": source("<zmq.h>"),
    "worker/edit_worker.c": source('"core/vec.h"'),
    "worker/llama.h": header("worker/llama.h"),
    "worker/llama.c": source('"worker/llama.h"'),
    "sim/world.c": source('"worker/llama.h"'),
    "ctl/client.c": source("<zmq.h>"),
    "tests/test_ring.c": source("<zmq.h>", '"worker/llama.h"', body="static void ring_closes(void **state)\n{\n}\n"),
    "docs/faults.md": "`test_ring: ring_closes`\n",
    "tools/draw.sh": "#!/bin/sh\n# Purpose.\necho drawn\n",
}

LONG_BODY = "int vec_long(void)\n{\n" + "\t;\n" * 68 + "}\n"

# Condition: (file, its bad text, part of the fault that must be found)
BAD = {
    "core_includes_a_later_file": ("core/vec.c", source('"core/ring.h"'), "does not stand before vec"),
    "core_includes_an_outside_header": ("core/ring.c", source("<stdio.h>"), "core/ may not include <stdio.h>"),
    "core_includes_another_folder": ("core/ring.c", source('"worker/llama.h"'), "does not stand before ring"),
    "proto_includes_daemon": ("proto/codec.c", source('"daemon/log.h"'), 'proto/ may not include "daemon/log.h"'),
    "daemon_includes_worker": ("daemon/control.c", source('"worker/llama.h"'), "daemon/ may not include"),
    "worker_includes_the_ring": ("worker/llama.c", source('"core/ring.h"'), "worker/ may not include"),
    "worker_includes_the_codec": ("worker/llama.c", source('"proto/codec.h"'), "worker/ may not include"),
    "ctl_includes_daemon": ("ctl/client.c", source('"daemon/log.h"'), "ctl/ may not include"),
    "sim_includes_the_workers_library": ("sim/world.c", source('"worker/edit_worker.h"'), "sim/ may not include"),
    "include_is_not_a_path": ("ctl/client.c", source('"client.h"'), "is not a path from the root"),
    "headers_form_a_circle": ("core/base.h", header("core/base.h", '#include "core/event.h"\n'), "include circle"),
    "zmq_leaves_its_place": ("sim/world.c", source("<zmq.h>"), "zmq.h is confined"),
    "protobuf_leaves_its_place": ("sim/world.c", source('"proto/peer.pb-c.h"'), "is confined"),
    "blas_leaves_its_place": ("worker/llama.c", source("<cblas.h>"), "cblas.h is confined"),
    "mmap_leaves_its_place": ("worker/llama.c", source("<sys/mman.h>"), "sys/mman.h is confined"),
    "function_is_too_long": ("core/vec.c", source(body=LONG_BODY), "vec_long: 71 lines"),
    "function_after_a_prototype_is_too_long": ("core/vec.c", source(body="int f(int a,\n\tint b);\n" + LONG_BODY),
                                               "core/vec.c:5: vec_long: 71 lines"),
    "python_function_is_too_long": ("tools/draw.py", '"""P."""\ndef f():\n' + "    pass\n" * 70, "f: 71 lines"),
    "file_is_too_long": ("core/vec.c", source(body="\n" * 600), "lines in a file"),
    "source_has_no_purpose": ("core/vec.c", '#include "core/vec.h"\n', "no comment at the head"),
    "header_has_no_purpose": ("worker/llama.h", header("worker/llama.h").replace("/* Purpose. */", "int x;"),
                              "no comment at the head"),
    "guard_is_not_the_path": ("worker/llama.h", header("worker/other.h"), "the guard is not"),
    "prototype_has_no_contract": ("core/vec.h", header("core/vec.h", "/* Adds. */\n\nint vec_add(int a);\n"),
                                  "vec.h:8: prototype without a contract"),
    "source_is_in_no_list": ("daemon/left.c", source(), "daemon/left.c:1: dead file"),
    "header_is_included_nowhere": ("daemon/left.h", header("daemon/left.h"), "daemon/left.h:1: dead file"),
    "script_is_run_nowhere": ("tools/left.sh", "#!/bin/sh\n# left.sh\n", "tools/left.sh:1: dead file"),
    "path_of_a_workplace": ("tools/draw.sh", "#!/bin/sh\n# See /ho" + "me/me/notes.\n", "does not belong"),
    "path_of_the_temporary_folder": ("tools/draw.sh", "#!/bin/sh\n# P.\necho >/tm" + "p/x\n", "does not belong"),
    "work_is_left_to_do": ("core/ring.c", source(body="/* TO" + "DO */\n"), "does not belong"),
    "shell_does_not_parse": ("tools/draw.sh", "#!/bin/sh\n# P.\nif then\n", "sh -n"),
    "fault_is_shown_by_a_test_that_is_not_there": ("docs/faults.md",
                                                   "| x | y | `test_ring: ring_is_round` |\n", "no test ring_is_round"),
    "python_does_not_compile": ("tools/draw.py", '"""P."""\ndef f(:\n', "not Python"),
}


def write(root, files):
    for path, text in files.items():
        os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
        with open(os.path.join(root, path), "w", encoding="utf-8") as file:
            file.write(text)


class Laws(unittest.TestCase):
    """One test per entry of BAD is added below."""

    def faults(self, changes, also=()):
        """Faults of the good tree with changes; also: headers that the change needs to exist."""
        with tempfile.TemporaryDirectory() as root:
            write(root, {**GOOD, **{path: header(path) for path in also}, **changes})
            return tidy.faults(root)[0]

    def test_good_tree_has_no_fault(self):
        self.assertEqual(self.faults({}), [])


def add_test(name, path, text, fragment):
    needed = {"core/ring.h", "proto/codec.h", "daemon/log.h", "worker/edit_worker.h"}

    def test(self):
        also = [h for h in needed if f'"{h}"' in text]
        found = self.faults({path: text}, also)
        self.assertTrue(any(fragment in line for line in found), f"'{fragment}' is not in {found}")
    setattr(Laws, "test_" + name, test)


for condition, case in BAD.items():
    add_test(condition, *case)


class Purity(unittest.TestCase):
    """The core's objects, compiled for the test."""

    def faults(self, body):
        with tempfile.TemporaryDirectory() as root:
            write(root, {"x.c": body})
            for command in (["cc", "-c", "-O1", "-fPIC", "x.c"], ["ar", "rcs", "core.a", "x.o"]):
                subprocess.run(command, cwd=root, check=True)
            return [text for _, _, text in tidy.law_purity(os.path.join(root, "core.a"))]

    def test_arithmetic_and_constant_tables_are_pure(self):
        self.assertEqual(self.faults("double sqrt(double);\nconst char *const names[] = {\"a\", \"b\"};\n"
                                     "double f(double x) { return sqrt(x); }\n"), [])

    def test_output_is_not_pure(self):
        self.assertEqual(self.faults("int puts(const char *);\nint f(void) { return puts(\"x\"); }\n"),
                         ["x.o: core/ may not use puts"])

    def test_variable_is_not_pure(self):
        self.assertEqual(self.faults("static int count;\nint f(void) { return ++count; }\n"),
                         ["x.o: count is a variable; core/ has none"])


if __name__ == "__main__":
    unittest.main()
