"""A lab of containers on one machine: podman, a bridge and all faults of its network live in a network namespace of the lab's own, so
that nothing of them reaches the machine's network, and one deletion takes them all away. Names hold the process id; a lab whose
process was killed is taken away when the next one starts."""

import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PREFIX = "editd-lab-"
SUBNET = "10.77.0"
IMAGE, BASE = "localhost/editd-node:test", "localhost/editd-base:test"
NEEDED = {"podman": "podman", "runc": "runc", "/usr/lib/podman/netavark": "netavark", "iptables": "iptables", "ip": "iproute2",
          "tc": "iproute2", "mmdebstrap": "mmdebstrap", "nsenter": "util-linux", "journalctl": "systemd"}
SUITE = "bookworm"
PACKAGES = ["systemd-sysv", "libfaketime"]  # of a node, besides the libraries that the programs are linked with
LEFT_AWAY = ["/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*"]

# Without CAP_SYS_RESOURCE podman's own limits cannot be set; the manager of cgroups must not be a systemd of this machine.
CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=16384:16384", "nproc=32768:32768"]
[network]
network_backend = "netavark"
network_config_dir = "{work}/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = "{run}/libpod"
"""
STORAGE_CONF = """[storage]
driver = "overlay"
graphroot = "{work}/store"
runroot = "{run}/storage"
"""

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float32", "hidden_act": "silu", "vocab_size": 256,
    "hidden_size": 32, "intermediate_size": 88, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False,
}


class LabError(Exception):
    """Why the lab cannot be set up or does not do what it is told; one line for a person."""


def run(*command, **options):
    """Output of a command; LabError with its last words if it fails."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False,
                          stdin=subprocess.DEVNULL, **options)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "says nothing").splitlines()
        raise LabError(f"{' '.join(map(str, command))}: exit status {done.returncode}: {words[-1]}")
    return done.stdout


def libraries(programs):
    """Debian packages of the shared libraries that programs are linked with."""
    paths = set(re.findall(r"=> (/\S+)", "".join(run("ldd", program) for program in programs)))
    packages = set()
    for path in paths:
        for name in (path, os.path.realpath(path), os.path.realpath(path).removeprefix("/usr")):
            done = subprocess.run(["dpkg-query", "-S", name], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                packages.add(done.stdout.split(":")[0])
                break
        else:
            raise LabError(f"{path}: no package of this machine holds it, so a node cannot have it either")
    return packages


class Netlab:
    """The image, the bridge, the nodes' containers and what is done to their network. Close it, however the work ends."""

    def __init__(self, build):
        self.build = pathlib.Path(build).resolve()
        self.name = f"{PREFIX}{os.getpid()}"
        self.run_dir, self.work = pathlib.Path("/run") / self.name, pathlib.Path("/var/tmp") / self.name
        self.journals = self.work / "journal"
        self.kept = self.build / "containers"  # the base, and journals of scenarios that failed
        self.delayer = self.lock = None

    # ---- Up and down ----

    def open(self):
        """From nothing to an image and a bridge without nodes."""
        self.check_machine()
        self.remove_leftovers()
        # Under its name only when it is locked: another that starts now would take it for a leftover.
        unnamed = self.run_dir.with_name("." + self.name)
        unnamed.mkdir()
        self.lock = lock(unnamed)
        unnamed.rename(self.run_dir)
        self.journals.mkdir(parents=True)
        (self.work / "keys").mkdir()
        self.kept.mkdir(parents=True, exist_ok=True)
        for name, text in (("containers.conf", CONTAINERS_CONF), ("storage.conf", STORAGE_CONF)):
            (self.work / name).write_text(text.format(work=self.work, run=self.run_dir))
        run("ip", "netns", "add", self.name)
        self.inside("ip", "link", "set", "lo", "up")
        # Who has which address is kept for all of the machine, by the name of the network.
        self.podman("network", "create", "--disable-dns", "--subnet", f"{SUBNET}.0/24", "--gateway", f"{SUBNET}.254", self.name)
        self.make_image()

    def close(self):
        """Takes everything away; LabError if something is left."""
        self.stop_delay()
        left = remove(self.name)
        if self.lock is not None:
            os.close(self.lock)
        if left:
            raise LabError(f"left behind: {', '.join(left)}")

    @staticmethod
    def check_machine():
        if os.geteuid() != 0:
            raise LabError("needs root: nodes are containers with a systemd and a network of their own")
        missing = sorted({package for program, package in NEEDED.items() if not shutil.which(program)})
        if missing:
            raise LabError(f"needs {' '.join(missing)} (apt install {' '.join(missing)}, or ./bootstrap check-containers)")

    @staticmethod
    def remove_leftovers():
        """Labs whose process is gone: nobody holds their lock."""
        for folder in pathlib.Path("/run").glob(PREFIX + "*"):
            fd = lock(folder)
            if fd is not None:
                remove(folder.name)
                os.close(fd)

    # ---- The image ----

    def make_image(self):
        base = self.make_base()
        self.podman("import", "--quiet", base, BASE)
        context = self.work / "context"
        shutil.copytree(ROOT / "tests/containers", context, ignore=shutil.ignore_patterns("*.py", "*.c", "__pycache__"))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
        run("make", "-C", ROOT, "install", f"B={os.path.relpath(self.build, ROOT)}", f"DESTDIR={context}/stage", "PREFIX=/usr",
            "SYSCONFDIR=/etc", env=plain)
        (context / "srv/model").mkdir(parents=True)
        (context / "srv/model/config.json").write_text(json.dumps(MODEL))
        texts = sorted((ROOT / "docs").glob("*.md"))
        (context / "srv/text.txt").write_bytes(b"\n".join(path.read_bytes() for path in texts))
        self.podman("build", "--quiet", "--pull=never", "--network", "none", "--build-arg", f"BASE={BASE}", "-t", IMAGE, context)

    def make_base(self):
        """A Debian with systemd and the libraries of our programs, kept from one lab to the next."""
        packages = sorted(libraries(self.build / name for name in ("editd", "edit-worker", "editctl")) | set(PACKAGES))
        key = hashlib.sha256(" ".join([SUITE] + packages + LEFT_AWAY).encode()).hexdigest()[:16]
        path = self.kept / f"base-{key}.tar"
        if not path.exists():
            part = path.with_suffix(f".{os.getpid()}.tar")
            try:
                run("mmdebstrap", "--quiet", "--format=tar", "--variant=essential", "--include=" + ",".join(packages),
                    *(f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_AWAY), SUITE, part)
                part.rename(path)
            finally:
                part.unlink(missing_ok=True)
        return path

    # ---- Containers ----

    def inside(self, *command):
        """Output of a program of this machine that runs in the namespace of the bridge."""
        return run("nsenter", f"--net=/run/netns/{self.name}", *command)

    def podman(self, *words):
        return run("nsenter", f"--net=/run/netns/{self.name}", "podman", *words, env=podman_environment(self.work)).strip()

    def start_node(self, name, number, cpus):
        """Boots a new node; returns the id of its container. A fixed hardware address spares neighbours a stale one after a return."""
        folder = self.journals / name
        folder.mkdir(exist_ok=True)
        return self.podman("run", "--detach", "--pull=never", "--name", name, "--hostname", name, "--cpus", cpus,
                           "--network", f"{self.name}:ip={address(number)},mac=02:ed:17:00:00:{number:02x}",
                           "--volume", f"{folder}:/var/log/journal", IMAGE)

    def init_pid(self, name):
        return int(self.podman("inspect", "--format", "{{.State.Pid}}", name))

    def remove_node(self, name):
        """Its container and its disk; the journal stays."""
        self.podman("rm", "--force", "--time", 0, name)

    def remove_nodes(self):
        """Ends all containers, at once, and all faults."""
        self.heal()
        self.podman("rm", "--force", "--all", "--time", 0)

    # ---- Faults: by address on the bridge, so that they outlive a node's restart ----

    def cut(self, sender, receiver):
        """Swallows what one node sends to another; the other direction stays."""
        self.inside("iptables", "-t", "mangle", "-A", "FORWARD", "-s", address(sender), "-d", address(receiver), "-j", "DROP")

    def mend(self, sender, receiver):
        """Ends cuts of this direction; none is fine."""
        with contextlib.suppress(LabError):
            while True:
                self.inside("iptables", "-t", "mangle", "-D", "FORWARD", "-s", address(sender), "-d", address(receiver), "-j", "DROP")

    def lose(self, share):
        """Swallows this share of all packets between nodes."""
        self.inside("iptables", "-t", "mangle", "-A", "FORWARD", "-s", f"{SUBNET}.0/24", "-d", f"{SUBNET}.0/24",
                    "-m", "statistic", "--mode", "random", "--probability", share, "-j", "DROP")

    def delay(self, milliseconds):
        """Holds up every packet between nodes for so long."""
        self.inside("iptables", "-I", "FORWARD", "-s", f"{SUBNET}.0/24", "-d", f"{SUBNET}.0/24",
                    "-j", "NFQUEUE", "--queue-num", 1, "--queue-bypass")
        self.delayer = subprocess.Popen(["nsenter", f"--net=/run/netns/{self.name}", self.build / "tests/containers/netdelay", "1",
                                         str(milliseconds)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.delayer.stdout.readline() != "ready\n":
            raise LabError("netdelay does not start")

    def stop_delay(self):
        if self.delayer:
            self.delayer.kill()
            self.delayer.wait()
            self.delayer.stdout.close()
            self.inside("iptables", "-D", "FORWARD", 1)
            self.delayer = None

    def heal(self):
        """Ends cuts, losses and delays."""
        self.inside("iptables", "-t", "mangle", "-F", "FORWARD")
        self.stop_delay()


def address(number):
    return f"{SUBNET}.{10 + number}"


def podman_environment(work):
    return {**os.environ, "CONTAINERS_CONF": str(work / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(work / "storage.conf")}


def lock(folder):
    """A descriptor that holds the lab's lock, None if another process does."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(fd)
        return None
    return fd


def container_cgroups():
    return [path for path in pathlib.Path("/sys/fs/cgroup").glob("**/libpod_parent") if path.is_dir()]


def remove(name):
    """Takes the lab of this name away, in whatever state it is; returns what could not be."""
    run_dir, work, namespace = pathlib.Path("/run") / name, pathlib.Path("/var/tmp") / name, pathlib.Path("/run/netns") / name
    if namespace.exists() and (work / "storage.conf").exists():
        subprocess.run(["nsenter", f"--net={namespace}", "podman", "rm", "--force", "--all", "--time", "0"], check=False,
                       env=podman_environment(work), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    mounts = [line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines() if name in line.split()[1]]
    for mount in sorted(mounts, key=len, reverse=True):
        if mount != str(namespace):
            subprocess.run(["umount", mount], check=False)
    if namespace.exists():
        subprocess.run(["ip", "netns", "del", name], check=False)
    for top in container_cgroups():
        for folder in sorted(top.glob("**/"), key=lambda path: len(path.parts), reverse=True):
            try:
                folder.rmdir()  # refused while it is in use: those of another lab
            except OSError:
                pass
    for folder in (work, run_dir):
        shutil.rmtree(folder, ignore_errors=True)
    return leftovers(name)


def leftovers(name, seconds=5):
    """What of a lab is still there, some seconds after it was ended."""
    end = time.monotonic() + seconds
    while True:
        left = [str(path) for path in (pathlib.Path("/run") / name, pathlib.Path("/var/tmp") / name, pathlib.Path("/run/netns") / name)
                if path.exists()]
        left += [f"mount {line.split()[1]}" for line in pathlib.Path("/proc/mounts").read_text().splitlines() if name in line]
        left += [f"process {pid}" for pid in processes(lambda folder: name.encode() in (folder / "cmdline").read_bytes())]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.1)


def processes(is_wanted):
    """Process ids of this machine for whose folder of /proc it is so."""
    found = []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and is_wanted(folder):
                found.append(int(folder.name))
        except OSError:
            pass  # it has just ended
    return found
