//! What this kernel offers, found by trying.

use std::fs;

use anyhow::Result;

use crate::bed::Host;

/// What tests depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// sch_fq: perturb's pacer `fq`.
    pub fq: bool,
    /// sch_netem: the emulator to compare with.
    pub netem: bool,
    /// /dev/net/tun: perturb's pacer `user`.
    pub tun: bool,
    /// Programs are compiled; in an interpreter they are about ten times slower.
    pub jit: bool,
}

impl Kernel {
    /// Tries on a host, which it leaves as it was.
    pub fn probe(host: &Host) -> Result<Self> {
        let has = |qdisc: &str| -> Result<bool> {
            let added = host
                .command("tc")
                .args(["qdisc", "add", "dev", "lo", "root", qdisc])
                .output()?;
            if added.status.success() {
                host.run("tc qdisc del dev lo root")?;
            }
            Ok(added.status.success())
        };
        let jit = fs::read_to_string("/proc/sys/net/core/bpf_jit_enable");
        Ok(Self {
            fq: has("fq")?,
            netem: has("netem")?,
            tun: fs::metadata("/dev/net/tun").is_ok(),
            jit: jit.is_ok_and(|value| value.trim() != "0"),
        })
    }

    /// Its release, as `uname -r` says.
    #[must_use]
    pub fn release() -> String {
        nix::sys::utsname::uname()
            .map(|name| name.release().to_string_lossy().into_owned())
            .unwrap_or_else(|_| "unknown".into())
    }
}
