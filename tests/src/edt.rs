//! The plain way to emulate a delay with sch_fq: a program that sets a packet's departure, and nothing else.
//!
//! Model: at each end a classifier at egress sets the time stamp (earliest departure time, "EDT") to now plus the delay, and fq lets
//! the packet go at that time. The packet keeps its socket, so TCP counts it as waiting in this host's own queues and
//! stops after two (TCP small queues): this is what perturb does otherwise, and the reason why.

use std::{io, os::fd::AsRawFd as _, time::Duration};

use anyhow::{Context as _, Result};

use crate::bed::{Bed, Host, INTERFACE};

/// Where a program is pinned between its loading and its attachment.
const PINS: &str = "/sys/fs/bpf";

/// `BPF_PROG_LOAD` and `BPF_OBJ_PIN` of bpf(2).
const LOAD: libc::c_int = 5;
const PIN: libc::c_int = 6;
pub(crate) const SCHED_CLS: u32 = 3;
/// Numbers of the helpers `bpf_ktime_get_ns` and `bpf_skb_set_tstamp` (since 5.18).
const KTIME: i32 = 5;
const SET_TSTAMP: i32 = 192;
/// `BPF_SKB_TSTAMP_DELIVERY_MONO`.
const MONO: i32 = 1;

/// The emulation; dropping it ends it.
#[derive(Debug)]
pub struct Edt<'a>(&'a Bed);

impl<'a> Edt<'a> {
    /// Delays what both hosts of a bed send.
    pub fn start(bed: &'a Bed, delay: Duration) -> Result<Self> {
        let started = Self(bed);
        let pin = format!("{PINS}/perturb-edt-{}", std::process::id());
        self::pin(SCHED_CLS, &program(delay), &pin).context("loading a program that sets time stamps")?;
        let attached = [&bed.left, &bed.right]
            .into_iter()
            .try_for_each(|host| attach(host, &pin));
        std::fs::remove_file(&pin).with_context(|| format!("removing {pin}"))?;
        attached?;
        Ok(started)
    }
}

impl Drop for Edt<'_> {
    fn drop(&mut self) {
        for host in [&self.0.left, &self.0.right] {
            for kind in ["root", "clsact"] {
                // If the second could not be made, there is none to remove.
                let _ = host.run(&format!("tc qdisc del dev {INTERFACE} {kind}"));
            }
        }
    }
}

fn attach(host: &Host, pin: &str) -> Result<()> {
    for line in [
        format!("tc qdisc add dev {INTERFACE} root fq limit 1000000 flow_limit 1000000"),
        format!("tc qdisc add dev {INTERFACE} clsact"),
        format!("tc filter add dev {INTERFACE} egress bpf da object-pinned {pin}"),
    ] {
        host.run(&line)?;
    }
    Ok(())
}

/// An instruction: operation, registers (destination in the low half), offset, immediate.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Instruction(pub(crate) u8, pub(crate) u8, pub(crate) i16, pub(crate) i32);

fn program(delay: Duration) -> [Instruction; 11] {
    let nanos = delay.as_nanos() as u64;
    let (low, high) = (nanos as u32, (nanos >> 32) as u32);
    [
        Instruction(0xbf, 0x16, 0, 0),                 // r6 = r1, the packet
        Instruction(0x85, 0, 0, KTIME),                // r0 = now
        Instruction(0x18, 0x01, 0, low.cast_signed()), // r1 = delay
        Instruction(0, 0, 0, high.cast_signed()),
        Instruction(0x0f, 0x10, 0, 0),       // r0 += r1
        Instruction(0xbf, 0x61, 0, 0),       // r1 = r6
        Instruction(0xbf, 0x02, 0, 0),       // r2 = r0
        Instruction(0xb7, 0x03, 0, MONO),    // r3 = kind of clock
        Instruction(0x85, 0, 0, SET_TSTAMP), // set it
        Instruction(0xb7, 0x00, 0, 0),       // r0 = TC_ACT_OK
        Instruction(0x95, 0, 0, 0),          // return
    ]
}

/// The part of `union bpf_attr` that loading needs.
#[repr(C)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    unused: [u64; 12],
}

/// The part that pinning needs.
#[repr(C)]
struct PinAttributes {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// Loads a program of a kind and pins it.
pub(crate) fn pin(kind: u32, instructions: &[Instruction], pin: &str) -> io::Result<()> {
    let attributes = LoadAttributes {
        kind,
        count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        unused: [0; 12],
    };
    // SAFETY: the attributes, and what they point to, outlive the call, which only reads them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            LOAD,
            &raw const attributes,
            size_of::<LoadAttributes>(),
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us.
    let descriptor =
        unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor as i32) };
    let path = std::ffi::CString::new(pin)?;
    let attributes = PinAttributes {
        path: path.as_ptr() as u64,
        descriptor: descriptor.as_raw_fd() as u32,
        flags: 0,
    };
    // SAFETY: as above.
    let done = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            PIN,
            &raw const attributes,
            size_of::<PinAttributes>(),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
