"""A real Slurm cluster of two nodes on this machine, for as long as a command runs.

    python tests/cluster/slurm_cluster.py COMMAND ...      e.g. `sbatch --wait -N2 job.sh`, `srun -N2 hostname`, `bash`

starts munged, slurmctld and two slurmd in a folder of their own, runs the command with SLURM_CONF set, stops the
daemons, and gives back the command's exit code. Several clusters can run side by side: keys, sockets, ports and spool
folders are their own. In Python: `with SlurmCluster(folder) as cluster: cluster.run(["srun", "-N2", "hostname"])`.

Needs root (slurmd starts steps as their users) and Debian's packages:

    apt-get install --no-install-recommends slurm-wlm munge
"""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
NUM_NODES = 2
MEMORY_MIB = 4000  # of a node; nothing enforces it
# The PATH of a system daemon; Debian keeps the daemons in /usr/sbin.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"


def why_not() -> str | None:
    """The programs or rights that this machine lacks for a cluster; None if nothing is missing."""
    missing = [program for program in PROGRAMS if shutil.which(program, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install --no-install-recommends slurm-wlm munge"
    return None if os.geteuid() == 0 else "only root can run slurmd"


class SlurmCluster:
    """Runs munged, slurmctld and `NUM_NODES` slurmd, all on this host, with their files in `folder`.

    Args:
        gpus_per_node: that Slurm manages; terminals stand for them.
    """

    def __init__(self, folder: Path, *, cpus_per_node: int | None = None, gpus_per_node: int = 0) -> None:
        self.folder, self._gpus = folder, gpus_per_node
        self._cpus = cpus_per_node or len(os.sched_getaffinity(0))
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(folder / "slurm.conf")}

    def __enter__(self) -> "SlurmCluster":
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self, command: Sequence[str], **options) -> subprocess.CompletedProcess:
        """Run the command as a user of the cluster would; `options` are passed to subprocess.run."""
        return subprocess.run(command, env={**self.environment, **options.pop("env", {})}, **options)

    def output(self, *command: str) -> str:
        """Return the standard output of a command that must succeed."""
        done = self.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)} ended with exit code {done.returncode}: {done.stderr}")
        return done.stdout.strip()

    def stop(self) -> None:
        """Cancel the jobs and end the daemons: slurmctld second to last, so that steps can report, and munged last."""
        if (self.folder / "slurm.conf").exists() and len(self._daemons) == NUM_NODES + 2:
            self.run(["scancel", "--full", "--user", "root"], capture_output=True)
            self._wait_until(
                "no job runs", lambda: not self.output("squeue", "--noheader", "--states", "R,CG"), 20.0, strict=False
            )
        for daemon in reversed(self._daemons):
            daemon.send_signal(signal.SIGTERM)
        for daemon in reversed(self._daemons):
            try:
                daemon.wait(timeout=15)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self._daemons = []

    def logs(self) -> str:
        """Return the ends of the daemons' logs, for the message of a failed test."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in sorted(self.folder.glob("*.log"))
        )

    def _start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)  # munged refuses a socket in a folder that others can write to
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        socket_file = self.folder / "munge.socket"
        self._daemon(
            *shlex.split(
                f"munged --foreground --force --key-file={key} --socket={socket_file} "
                f"--pid-file={self.folder}/munged.pid --log-file={self.folder}/munge.log "
                f"--seed-file={self.folder}/munge.seed"
            )
        )
        self._wait_until("munged listens", socket_file.exists, 10.0)
        for name in ("state", *(f"spool.{node}" for node in self.nodes())):
            (self.folder / name).mkdir(exist_ok=True)
        (self.folder / "slurm.conf").write_text(self._configuration(socket_file))
        self._daemon("slurmctld", "-D", "-f", str(self.folder / "slurm.conf"))
        for node in self.nodes():
            self._daemon("slurmd", "-D", "-f", str(self.folder / "slurm.conf"), "-N", node)
        self._wait_until("both nodes are idle", self._all_idle, 60.0)

    def nodes(self) -> list[str]:
        return [f"node{number}" for number in range(1, NUM_NODES + 1)]

    def _all_idle(self) -> bool:
        done = self.run(["sinfo", "--noheader", "--Node", "--format=%T"], capture_output=True, text=True)
        return done.stdout.split() == ["idle"] * NUM_NODES

    def _daemon(self, *command: str) -> None:
        program = shutil.which(command[0], path=_PATH)
        assert program is not None, command[0]
        name = f"{command[0]}{len(self._daemons)}"
        with open(self.folder / f"{name}.out.log", "wb") as log:
            self._daemons.append(
                subprocess.Popen(
                    [program, *command[1:]],
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    env=self.environment,
                )
            )

    def _wait_until(self, what: str, condition, seconds: float, strict: bool = True) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            dead = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            if time.monotonic() > deadline or dead:
                if not strict:
                    return
                raise RuntimeError(f"{what}: not so after {seconds:.0f} s; ended: {dead}\n{self.logs()}")
            time.sleep(0.2)

    def _configuration(self, munge_socket: Path) -> str:
        """Configure nodes as processes of one host, each with its own ports; requeued jobs start again after
        seconds."""
        host, folder = socket.gethostname().split(".")[0], self.folder
        controller_port, *node_ports = free_ports(NUM_NODES + 1)
        lines = [
            "ClusterName=onemachine",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={controller_port}",
            "SlurmUser=root",
            "SlurmdUser=root",
            "AuthType=auth/munge",
            "CredType=cred/munge",
            f"AuthInfo=socket={munge_socket},cred_expire=5",  # a requeued job may begin when its credential has expired
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool.%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd.%n.pid",
            f"SlurmctldLogFile={folder}/slurmctld.log",
            f"SlurmdLogFile={folder}/slurmd.%n.log",
            "SlurmdParameters=config_overrides",  # believe the CPUs below, also where the machine has fewer
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "JobAcctGatherType=jobacct_gather/none",
            "MpiDefault=none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "ReturnToService=2",
            "SchedulerType=sched/builtin",
            "SchedulerParameters=sched_interval=2,batch_sched_delay=0",
            "KillWait=30",
            "InactiveLimit=0",
            "MinJobAge=3600",
            "JobRequeue=1",
        ]
        gpus = f" Gres=gpu:{self._gpus}" if self._gpus else ""
        if self._gpus:
            devices = [f"NodeName={node} Name=gpu File=/dev/tty[1-{self._gpus}]" for node in self.nodes()]
            (folder / "gres.conf").write_text("\n".join(devices) + "\n")
            lines += ["GresTypes=gpu"]
        lines += [
            f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={self._cpus} "
            f"RealMemory={MEMORY_MIB}{gpus} State=UNKNOWN"
            for node, port in zip(self.nodes(), node_ports, strict=True)
        ]
        lines += [f"PartitionName=main Nodes={','.join(self.nodes())} Default=YES MaxTime=INFINITE State=UP"]
        return "\n".join(lines) + "\n"


def free_ports(count: int) -> list[int]:
    listeners = [socket.socket() for _ in range(count)]
    try:
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]
    finally:
        for listener in listeners:
            listener.close()


def main(command: Sequence[str]) -> int:
    reason = why_not()
    if not command or reason:
        print(__doc__ if not command else f"error: {reason}", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, SlurmCluster(Path(folder)) as cluster:
        return cluster.run(command).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
