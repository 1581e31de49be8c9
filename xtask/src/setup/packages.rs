//! Programs that come from the distribution.

use std::{fmt::Write as _, process::Command};

use anyhow::{Context as _, Result, bail};

use super::Mode;
use crate::command::{find, output, run, run_over_network, say};

/// A program and Debian's package that has it.
#[derive(Debug, Clone, Copy)]
struct Program {
    name: &'static str,
    package: &'static str,
    purpose: &'static str,
}

const fn program(name: &'static str, package: &'static str, purpose: &'static str) -> Program {
    Program {
        name,
        package,
        purpose,
    }
}

const BASE: &[Program] = &[
    program("linux.uml", "user-mode-linux", "the sandbox's kernel"),
    program("modprobe", "kmod", "loads the guests' modules"),
    program("ip", "iproute2", "shows what the tests find on interfaces"),
    program("tc", "iproute2", "netem, to compare with"),
    program("ethtool", "ethtool", "switches offloads"),
    program("ping", "iputils-ping", "round-trip times"),
    program("iperf3", "iperf3", "throughput"),
];

const STOCK: &str = "the processors of the stock kernels";
const QEMU_X86: Program = program("qemu-system-x86_64", "qemu-system-x86", STOCK);
const QEMU_ARM: Program = program("qemu-system-aarch64", "qemu-system-arm", STOCK);
const XZ: Program = program("xz", "xz-utils", "unpacks the stock kernels' modules");
const MMDEBSTRAP: Program = program("mmdebstrap", "mmdebstrap", "makes fresh systems");
const MPIRUN: Program = program("mpirun", "openmpi-bin", "runs MPI programs");
const MPICC: Program = program("mpicc", "libopenmpi-dev", "compiles MPI programs");
const MOUNT_NFS: Program = program("mount.nfs", "nfs-common", "the NFS client");
const CURL: Program = program("curl", "curl", "fetches files");
const SSHD: Program = program("sshd", "openssh-server", "lets perturb onto machines");
const SSH: Program = program("ssh", "openssh-client", "how it gets there");
const NFSD: Program = program("rpc.nfsd", "nfs-kernel-server", "starts the kernel's NFS server");

/// Optional programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Group {
    /// Debian's stock kernels, and processors for them
    Vm,
    /// The same with another processor: aarch64, or x86_64 where that is this machine's
    OtherVm,
    /// Open MPI, for the message-passing experiments
    Mpi,
    /// NFS servers and a client
    Nfs,
    /// What the experiments in configs/experiments measure
    Experiments,
    /// What watches: Prometheus, which reads the metrics, tmux, a terminal for `perturb top`, and tshark, which reads captures
    Metrics,
    /// Podman and Docker, whose containers are emulated
    Containers,
    /// sshd, for machines of network namespaces
    Machines,
    /// The same, and Slurm on them
    Cluster,
    /// What the tests of the Python package use
    Python,
    /// What makes packages, and systems to install them on
    Dist,
    /// bpftool, to look at programs and maps
    Bpftool,
}

impl Group {
    fn programs(self) -> &'static [Program] {
        match self {
            Self::Vm => {
                const {
                    &[
                        if cfg!(target_arch = "aarch64") {
                            QEMU_ARM
                        } else {
                            QEMU_X86
                        },
                        XZ,
                    ]
                }
            }
            Self::OtherVm => {
                const {
                    &[
                        if cfg!(target_arch = "aarch64") {
                            QEMU_X86
                        } else {
                            QEMU_ARM
                        },
                        XZ,
                        MMDEBSTRAP,
                    ]
                }
            }
            Self::Mpi => {
                const {
                    &[
                        MPIRUN,
                        MPICC,
                        program("gfortran", "gfortran", "compiles those in Fortran"),
                    ]
                }
            }
            Self::Nfs => {
                const {
                    &[
                        program("ganesha.nfsd", "nfs-ganesha-vfs", "an NFS server in user space"),
                        NFSD,
                        MOUNT_NFS,
                    ]
                }
            }
            Self::Experiments => {
                const {
                    &[
                        MPIRUN,
                        MPICC,
                        program("lighttpd", "lighttpd", "a web server"),
                        program("wrk", "wrk", "asks web servers"),
                        CURL,
                        NFSD,
                        MOUNT_NFS,
                        program("rpcbind", "rpcbind", "tells NFS clients the ports"),
                    ]
                }
            }
            Self::Metrics => {
                const {
                    &[
                        program("prometheus", "prometheus", "reads metrics"),
                        program("promtool", "prometheus", "checks metrics"),
                        program("tmux", "tmux", "a terminal whose screen can be read"),
                        program("tshark", "tshark", "reads captures"),
                    ]
                }
            }
            Self::Containers => {
                const {
                    &[
                        program("podman", "podman", "containers"),
                        program("crun", "crun", "starts them"),
                        program("/usr/lib/podman/netavark", "netavark", "joins them"),
                        program("dockerd", "docker.io", "containers of Docker"),
                        program("busybox", "busybox-static", "what is in them"),
                    ]
                }
            }
            Self::Machines => const { &[SSHD, SSH] },
            Self::Cluster => {
                const {
                    &[
                        SSHD,
                        SSH,
                        program("slurmctld", "slurm-wlm", "gives machines to jobs"),
                        program("munged", "munge", "tells Slurm who asks"),
                    ]
                }
            }
            Self::Python => {
                const {
                    &[
                        program("pytest-3", "python3-pytest", "runs Python's tests"),
                        program("mypy", "mypy", "checks Python's types"),
                        program("pip3", "python3-pip", "installs Python's packages"),
                        CURL,
                    ]
                }
            }
            Self::Dist => {
                const {
                    &[
                        program(
                            "llvm-objcopy",
                            "llvm",
                            "takes debug information off eBPF programs",
                        ),
                        program("pip3", "python3-pip", "installs Zig, which links static programs"),
                        program("rpmbuild", "rpm", "makes an rpm"),
                        MMDEBSTRAP,
                        program(
                            "qemu-aarch64-static",
                            "qemu-user-static",
                            "runs programs for aarch64",
                        ),
                        program("podman", "podman", "runs images"),
                        program("crun", "crun", "starts them"),
                        program("jq", "jq", "writes the summary of action.yml"),
                    ]
                }
            }
            Self::Bpftool => const { &[program("bpftool", "bpftool", "shows programs and maps")] },
        }
    }
}

/// Makes sure that the base programs and those of the groups are there.
pub(crate) fn ensure(groups: &[Group], mode: Mode) -> Result<()> {
    let wanted = BASE
        .iter()
        .chain(groups.iter().flat_map(|group| group.programs()));
    let missing: Vec<_> = wanted.filter(|program| find(program.name).is_none()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if find("apt-get").is_none() {
        let mut message = "this is not Debian; install by your distribution's means:".to_owned();
        for Program {
            name,
            package,
            purpose,
        } in missing
        {
            // Writing to a string cannot fail.
            let _: std::fmt::Result = write!(message, "\n  {name} ({purpose}; Debian's package {package})");
        }
        bail!(message);
    }
    for program in &missing {
        say(&format!("{} is missing ({})", program.name, program.purpose));
    }
    let mut packages: Vec<_> = missing.iter().map(|program| program.package).collect();
    packages.dedup();
    ensure_packages(&packages, mode)?;
    match missing.iter().find(|program| find(program.name).is_none()) {
        Some(program) => bail!("{} is installed, but has no {}", program.package, program.name),
        None => Ok(()),
    }
}

/// Installs packages, or says how to.
pub(crate) fn ensure_packages(packages: &[&str], mode: Mode) -> Result<()> {
    let line = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if find("apt-get").is_none() {
        bail!(
            "this needs Debian's packages {}, or your distribution's counterparts",
            packages.join(", ")
        );
    }
    if mode == Mode::Check {
        bail!("missing: {line}");
    }
    if !is_root() {
        bail!("not root, so you have to do it: sudo {line}");
    }
    let install = |runner: fn(&mut Command) -> Result<()>| {
        let mut apt = apt_get();
        apt.args(["install", "--yes", "--no-install-recommends"])
            .args(packages);
        runner(&mut apt)
    };
    if install(run).is_ok() {
        return Ok(());
    }
    say("the package lists may be old");
    run_over_network(apt_get().arg("update"))?;
    install(run_over_network).with_context(|| format!("try it by hand: {line}"))
}

/// Whether the distribution has the package, as far as its lists say.
pub(crate) fn is_available(package: &str, mode: Mode) -> bool {
    let known = || output(Command::new("apt-cache").args(["show", "--no-all-versions", package])).is_some();
    // A fresh container has no lists yet.
    let may_update = mode == Mode::Install && is_root() && !has_lists();
    known() || (may_update && run_over_network(apt_get().arg("update")).is_ok() && known())
}

fn has_lists() -> bool {
    let lists = std::fs::read_dir("/var/lib/apt/lists")
        .into_iter()
        .flatten()
        .flatten();
    lists
        .map(|entry| entry.file_name())
        .any(|name| name.to_string_lossy().contains("_Packages"))
}

fn apt_get() -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-q", "-o", "DPkg::Lock::Timeout=300"])
        .env("DEBIAN_FRONTEND", "noninteractive");
    command
}

/// Whether this process may change the system.
pub(crate) fn is_root() -> bool {
    // The owner of a process's directory in /proc is its effective user.
    std::fs::metadata("/proc/self").is_ok_and(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata) == 0)
}
