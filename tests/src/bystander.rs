//! Programs of others at an interface, which let every packet pass.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use aya::programs::{SchedClassifier, TcAttachType, links::LinkOrder, tc::TcAttachOptions};

use tempfile::TempDir;

use crate::{
    bed::{Host, INTERFACE},
    edt::{Instruction, SCHED_CLS, pin},
};

const XDP: u32 = 6;
/// TC_ACT_OK answers for the packet: nothing behind it is asked.
const TC_ACT_OK: i32 = 0;
const XDP_PASS: i32 = 2;
/// Priority of a filter.
pub const PREF: u16 = 5;

fn answers(answer: i32) -> [Instruction; 2] {
    [
        Instruction(0xb7, 0x00, 0, answer), // r0 = answer
        Instruction(0x95, 0, 0, 0),         // return
    ]
}

fn pinned<T>(kind: u32, answer: i32, work: impl FnOnce(&str) -> Result<T>) -> Result<T> {
    let place = TempDir::with_prefix("perturb-bystander-")?;
    let directory = place.path().to_str().context("a temporary directory")?;
    // Not every machine has a bpffs.
    command(&["mount", "-t", "bpf", "none", directory])?;
    let path = format!("{directory}/program");
    let done = pin(kind, &answers(answer), &path)
        .context("loading a program that lets all pass")
        .and_then(|()| work(&path));
    command(&["umount", directory])?;
    done
}

fn command(words: &[&str]) -> Result<()> {
    let output = Command::new(words[0]).args(&words[1..]).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}`: {}", words.join(" "), said.trim());
    Ok(())
}

/// Programs at both sides of a host's interface that answer for every packet. Dropping it detaches those at TCX; filters end
/// with their qdisc.
#[derive(Debug)]
pub struct Bystander {
    _programs: Vec<SchedClassifier>,
    /// What the one at egress is called.
    pub name: String,
}

impl Bystander {
    /// Attaches them, by TCX where the kernel has it, else as clsact filters of priority `pref`; at TCX those of priority 1
    /// come first, all others last.
    pub fn at(host: &Host, pref: u16) -> Result<Self> {
        pinned(SCHED_CLS, TC_ACT_OK, |path| {
            let mut programs = Vec::new();
            if perturb_dataplane::attach::has_tcx() {
                for side in [TcAttachType::Egress, TcAttachType::Ingress] {
                    let mut program = SchedClassifier::from_pin(path)?;
                    let order = if pref == 1 {
                        LinkOrder::first()
                    } else {
                        LinkOrder::last()
                    };
                    let options = TcAttachOptions::TcxOrder(order);
                    host.enter(|| program.attach_with_options(INTERFACE, side, options).map(drop))??;
                    programs.push(program);
                }
                return Ok(Self {
                    _programs: programs,
                    name: "program ".into(),
                });
            }
            // It may be there already.
            let _ = host.run(&format!("tc qdisc add dev {INTERFACE} clsact"));
            for side in ["egress", "ingress"] {
                host.run(&format!(
                    "tc filter add dev {INTERFACE} {side} pref {pref} bpf da object-pinned {path}"
                ))?;
            }
            Ok(Self {
                _programs: programs,
                name: format!("filter bpf pref {pref}"),
            })
        })
    }
}

/// Attaches an XDP program to a host's interface; it stays as long as the interface.
pub fn xdp(host: &Host) -> Result<()> {
    pinned(XDP, XDP_PASS, |path| {
        host.run(&format!("ip link set dev {INTERFACE} xdpgeneric pinned {path}"))
            .map(drop)
    })
}
