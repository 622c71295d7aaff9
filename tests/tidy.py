#!/usr/bin/env python3
"""The laws of the tree, checked: who may include whom, purity of the core, length, comments, no dead file.

    tests/tidy.py [--core build/core.a] [ROOT]

Prints one line per fault (file:line: what), exits 1 if there is any. docs/style.md tells the laws in words; the order
of files in core/ and the list of sources come from the Makefile. tests/test_tidy.py shows that each law can fail.
"""

import argparse
import ast
import os
import re
import subprocess
import sys

FUNCTION_LINES = 70
FILE_LINES = 600
SOURCES = (".c", ".h", ".py", ".sh", ".proto")

# Makefile lists that hold the .c files of a folder.
LISTS = {"core": ["CORE"], "proto": ["PROTO"], "daemon": ["DAEMON"], "worker": ["LIBW", "MODEL", "TOOLS"], "sim": ["SIM"],
         "ctl": ["CTL"], "tests": ["TESTS", "HELPERS", "PROBES"]}

# What a file of a folder may include: folder/ = all of it, $LIST = the files of a Makefile list.
INCLUDE_LAW = {
    "core": [],  # by the order of the Makefile's PLAIN and CORE
    "proto": ["core/", "proto/"],
    "daemon": ["core/", "proto/", "daemon/"],
    "worker": ["$PLAIN", "core/vec", "proto/segment", "proto/bell", "proto/description", "proto/mapping", "proto/stream",
               "proto/text", "proto/safetensors", "proto/check", "worker/"],
    "ctl": ["$PLAIN", "core/vec", "proto/", "ctl/"],
    "sim": ["core/", "proto/", "worker/$MODEL", "worker/llama_config", "worker/llama_weights", "worker/corpus", "worker/complain",
            "worker/threads", "worker/meter", "sim/"],
}

# Outside headers and the only files that may know them; tests may know all.
CONFINED = {
    r"zmq\.h": r"daemon/((transport|dealer|socket|handshake|zap|keyring|control)\.c|reception\.h)|ctl/(client|remote|keygen)\.c",
    r"protobuf-c/.*|.*\.pb-c\.h": r"proto/(control_)?codec\w*\.[ch]|daemon/(control|answer)\w*\.[ch]|ctl/\w+\.[ch]",
    r"cblas\.h": r"worker/kernels\w*\.c",
    r"sys/mman\.h": r"proto/mapping\.c",
}
CORE_OUTSIDE = {"float.h", "limits.h", "math.h", "stdbool.h", "stddef.h", "stdint.h", "string.h"}

CORE_UNDEFINED = {"memcpy", "memset", "memcmp", "sqrt", "exp", "fabs", "check_failed",
                  # made by the compiler: position-independent code, and libgcc's choice between instruction sets
                  "_GLOBAL_OFFSET_TABLE_", "__cpu_model", "__cpu_features2", "__cpu_indicator_init"}

# Words of a workplace; the brackets keep this file clear of them.
WORKPLACE = re.compile(r"/wor[k]/|/hom[e]/|/roo[t]/|\biss[u]e #?\d|\bTOD[O]\b|\bFIXM[E]\b|\bXX[X]\b")
TEMPORARY = re.compile(r"[\"' =(>]/tm[p]/")


class Tree:
    """All text files under root, by path from there, and the Makefile's lists."""

    def __init__(self, root):
        self.root = root
        self.files = {}
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if f not in ("build", ".git", "__pycache__")]
            for name in names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if path == ".git":
                    continue
                try:
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        self.files[path] = file.read()
                except (UnicodeDecodeError, OSError):
                    continue  # not text: no law for it
        self.makefile = self.files.get("Makefile", "")
        joined = self.makefile.replace("\\\n", " ")
        self.lists = {name: words.split() for name, words in re.findall(r"^(\w+)\s*:=(.*)$", joined, re.M)}

    def named(self, name):
        """Words of a Makefile list."""
        return self.lists.get(name, [])

    def of_kind(self, *endings):
        """(path, text) of the files that end so, in order."""
        return [(path, text) for path, text in sorted(self.files.items()) if path.endswith(endings)]


def includes(text):
    """(line number, header, is_quoted) of each include."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*#\s*include\s*([\"<])([^\">]+)[\">]", line)
        if match:
            yield number, match[2], match[1] == '"'


def stem(path):
    return re.sub(r"\.[ch]$", "", path)


# ---- Includes ----


def may_include(tree, path, header):
    """Whether the include law of path's folder allows header (a path from the root)."""
    folder = path.split("/")[0]
    allowed = set()
    for rule in INCLUDE_LAW[folder]:
        if rule.startswith("$"):
            allowed.update("core/" + word for word in tree.named(rule[1:]))
        elif "$" in rule:
            prefix, name = rule.split("$")
            allowed.update(prefix + word for word in tree.named(name))
        elif rule.endswith("/"):
            if header.startswith(rule):
                return True
        else:
            allowed.add(rule)
    return stem(header) in allowed


def law_include(tree):
    order = tree.named("PLAIN") + tree.named("CORE")
    for path, text in tree.of_kind(".c", ".h"):
        folder = path.split("/")[0]
        for number, header, is_quoted in includes(text):
            if not is_quoted:
                if folder == "core" and header not in CORE_OUTSIDE:
                    yield path, number, f"core/ may not include <{header}>"
                continue
            source = header.replace(".pb-c.h", ".proto")
            if header not in tree.files and source not in tree.files:
                yield path, number, f'"{header}" is not a path from the root of the tree'
            elif folder == "core":
                own, other = stem(path)[5:], stem(header)[5:]
                is_before = own == other or (header.startswith("core/") and own in order and other in order and
                                             order.index(other) < order.index(own))
                if not is_before:
                    yield path, number, f'"{header}" does not stand before {own} in the order of core/'
            elif folder in INCLUDE_LAW and not may_include(tree, path, header):
                yield path, number, f'{folder}/ may not include "{header}"'


def law_circle(tree):
    graph = {path: [h for _, h, _ in includes(text) if h in tree.files] for path, text in tree.of_kind(".h")}
    done = set()

    def walk(path, trail):
        if path in trail:
            yield path, 1, "include circle: " + " -> ".join(trail[trail.index(path):] + [path])
        elif path not in done:
            for header in graph.get(path, []):
                yield from walk(header, trail + [path])
            done.add(path)

    for path in graph:
        yield from walk(path, [])


def law_confined(tree):
    for path, text in tree.of_kind(".c", ".h"):
        for number, header, _ in includes(text):
            for pattern, places in CONFINED.items():
                if re.fullmatch(pattern, header) and not re.fullmatch(places, path) and not path.startswith("tests/"):
                    yield path, number, f"{header} is confined to {places}"


# ---- Core ----


def law_purity(archive):
    """Undefined and writable symbols of the core's objects."""
    table = subprocess.run(["nm", "--format=sysv", archive], capture_output=True, text=True, check=True).stdout
    undefined, defined, member = [], set(), archive
    for line in table.split("\n"):
        match = re.match(r"Symbols from .*\[(.*)\]:", line)
        if match:
            member = match[1]
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 7 or fields[0] == "Name":
            continue
        name, kind, section = fields[0], fields[2], fields[6]
        if section == "*UND*":
            undefined.append((member, name))
        else:
            defined.add(name)
            if kind in "bBdDC" and not section.startswith(".data.rel.ro"):
                yield archive, 0, f"{member}: {name} is a variable; core/ has none"
    for member, name in undefined:
        if name not in defined and name not in CORE_UNDEFINED:
            yield archive, 0, f"{member}: core/ may not use {name}"


# ---- Length ----


def c_functions(text):
    """(line number, name, lines) of each function defined in C text, from the name line to the closing brace."""
    begin, name, is_body, is_macro = 0, "", False, False
    for number, line in enumerate(text.split("\n"), 1):
        was_macro, is_macro = is_macro, line.endswith("\\")
        if was_macro or line.startswith("#"):
            continue
        match = re.match(r"[A-Za-z_][^=;]*?(\w+)\(", line)
        if line.startswith("}"):
            if begin and is_body:
                yield begin, name, number - begin + 1
            begin = 0
        elif match and not begin and match[1] != "__attribute__" and not line.endswith((";", "}")):
            begin, name, is_body = number, match[1], line.endswith("{")
        elif begin and not is_body:
            is_body = line.endswith("{")
            if line.endswith(";"):
                begin = 0


def law_length(tree):
    for path, text in tree.of_kind(*SOURCES):
        count = text.count("\n")
        if count > FILE_LINES:
            yield path, count, f"{count} lines in a file, {FILE_LINES} allowed"
        functions = []
        if path.endswith((".c", ".h")):
            functions = list(c_functions(text))
        elif path.endswith(".py"):
            functions = [(node.lineno, node.name, node.end_lineno - node.lineno + 1)
                         for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
        for number, name, lines in functions:
            if lines > FUNCTION_LINES:
                yield path, number, f"{name}: {lines} lines in a function, {FUNCTION_LINES} allowed"


# ---- Comments ----


def law_purpose(tree):
    """A comment at the head of each file; in a header the guard, named after the path, stands before it."""
    for path, text in tree.of_kind(*SOURCES):
        head = [line for line in text.split("\n")[:8] if line.strip() and not line.startswith("#!")]
        if path.endswith(".h"):
            guards = {"EDIT_" + re.sub(r"\W", "_", path.upper()), re.sub(r"\W", "_", os.path.basename(path).upper())}
            if len(head) < 3 or head[0][8:] not in guards or head[1] != "#define " + head[0][8:]:
                yield path, 1, f"the guard is not {' or '.join(sorted(guards))}"
            head = head[2:]
        marks = {".c": ("/*", "//"), ".h": ("/*",), ".py": ('"""', "#"), ".sh": ("#",), ".proto": ("//",)}
        if not head or not head[0].startswith(marks[os.path.splitext(path)[1]]):
            yield path, 1, "no comment at the head of the file that tells its purpose"


def law_contract(tree):
    """In a header, a prototype stands below a comment, with no empty line between."""
    for path, text in tree.of_kind(".h"):
        has_comment, is_macro, depth = False, False, 0
        for number, line in enumerate(text.split("\n"), 1):
            was_macro, is_macro = is_macro, line.endswith("\\")
            if was_macro or line.startswith("#"):
                continue
            if not line.strip():
                has_comment = False
            elif re.match(r"(/\*| \*|//)", line):
                has_comment = True
            is_prototype = re.match(r"[A-Za-z_][\w *]*\b(\w+)\((?!\()", line) and depth == 0
            if is_prototype and not line.startswith(("static", "typedef", "enum {", "_Static_assert")) \
               and not has_comment:
                yield path, number, "prototype without a contract comment above"
            depth += line.count("{") - line.count("}") if not line.startswith('extern "C"') else 0
            depth = max(depth, 0)


# ---- Files ----


def law_dead(tree):
    scripts = "\n".join(text for path, text in tree.files.items()
                        if path.startswith((".ci/", "docs/", "systemd/", "tests/", "tools/", "bench/", "experiments/")) or
                        path in ("Makefile", "README.md", "bootstrap"))
    included = {header for _, text in tree.of_kind(".c", ".h") for _, header, _ in includes(text)}
    for path, _ in tree.of_kind(".c", ".h", ".py", ".sh"):
        folder, name = path.split("/")[0], os.path.splitext(os.path.basename(path))[0]
        if path.endswith(".h"):
            is_used = path in included
        elif path.endswith(".c"):
            is_used = any(name in tree.named(words) for words in LISTS.get(folder, [])) or \
                re.search(rf"\b{re.escape(stem(path))}\b", tree.makefile)
        else:
            base = os.path.basename(path)
            mentions = len(re.findall(rf"(?<![\w-]){re.escape(base)}\b", scripts))
            own = len(re.findall(rf"(?<![\w-]){re.escape(base)}\b", tree.files[path]))
            is_used = mentions > own or re.search(rf"\bimport {re.escape(name)}\b|\bfrom {re.escape(name)} ", scripts)
        if not is_used:
            yield path, 1, "dead file: nothing builds, includes or runs it"


def law_workplace(tree):
    for path, text in sorted(tree.files.items()):
        for number, line in enumerate(text.split("\n"), 1):
            match = WORKPLACE.search(line) or (not path.startswith("tests/") and TEMPORARY.search(line))
            if match:
                yield path, number, f"'{match[0].strip()}' does not belong into the tree"


def law_script(tree):
    """Shell scripts parse, Python compiles."""
    for path, text in sorted(tree.files.items()):
        first = text.split("\n", 1)[0]
        shell = re.match(r"#!\s*(?:/usr)?/bin/(?:env )?(bash|sh)\b", first)
        if shell or path.endswith(".sh"):
            name = shell[1] if shell else "sh"
            done = subprocess.run([name, "-n", os.path.join(tree.root, path)], capture_output=True, text=True)
            if done.returncode:
                yield path, 1, f"{name} -n: {done.stderr.strip()}"
        elif path.endswith(".py") or re.match(r"#!.*python", first):
            try:
                compile(text, path, "exec")
            except SyntaxError as error:
                yield path, error.lineno or 1, f"not Python: {error.msg}"


def law_shown(tree):
    """A test that docs/faults.md names is there."""
    for number, line in enumerate(tree.files.get("docs/faults.md", "").split("\n"), 1):
        for program, test in re.findall(r"`(test_\w+(?:\.py)?): (\w+)`", line):
            name = program if program.endswith(".py") else program + ".c"
            text = tree.files.get("tests/" + name) or tree.files.get("tests/system/" + name, "")
            if not re.search(rf"\b{test}\b", text):
                yield "docs/faults.md", number, f"no test {test} in {name}"


LAWS = [law_script, law_include, law_circle, law_confined, law_length, law_purpose, law_contract, law_dead,
        law_workplace, law_shown]


def faults(root, archive=None):
    """All faults under root, as lines; archive: the core's objects, plain build."""
    tree = Tree(root)
    found = []
    for law in LAWS:
        found += law(tree)
        if law is law_script and found:
            break  # the other laws read Python by its syntax
    if archive:
        found += law_purity(archive)
    return [f"{path}:{number}: {text}" for path, number, text in found], len(tree.files)


def main():
    parser = argparse.ArgumentParser(description="checks the laws of the tree")
    parser.add_argument("--core", metavar="ARCHIVE", help="archive of the core's objects, plain build")
    parser.add_argument("root", nargs="?", default=".")
    arguments = parser.parse_args()
    lines, count = faults(arguments.root, arguments.core)
    for line in lines:
        print(line)
    print(f"  {'PASS' if not lines else 'FAIL':6} {'tidy':24} {count} files, {len(lines)} faults")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
