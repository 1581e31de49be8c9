//! The life of a traced process: loaded, forked, ended.

#![allow(non_snake_case, reason = "the names are the C library's")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::preload::hook::hook;
use crate::preload::{sys, writer};
use crate::record::Event;

/// What is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(interpose), derive(clap::ValueEnum))]
pub enum Layer {
    /// MPI calls where a program uses MPI, TCP sockets elsewhere.
    Auto,
    /// MPI calls only.
    Mpi,
    /// TCP sockets only, those of MPI libraries too.
    Sockets,
}

impl Layer {
    /// As the environment has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mpi => "mpi",
            Self::Sockets => "sockets",
        }
    }
}

static LAYER: AtomicU8 = AtomicU8::new(0);

/// Programs that start others by their own sockets: not part of the traced program.
const LAUNCHERS: [&str; 11] = [
    "mpirun",
    "mpiexec",
    "orterun",
    "orted",
    "prterun",
    "prted",
    "mpiexec.hydra",
    "hydra_pmi_proxy",
    "srun",
    "ssh",
    "rsh",
];

/// What this process traces.
pub(crate) fn layer() -> Layer {
    match LAYER.load(Ordering::Relaxed) {
        1 => Layer::Mpi,
        2 => Layer::Sockets,
        _ => Layer::Auto,
    }
}

/// From now on this process is one of MPI: its sockets are MPI's own.
pub(crate) fn is_mpi() {
    if layer() == Layer::Auto {
        LAYER.store(1, Ordering::Relaxed);
    }
}

#[cfg(interpose)]
#[unsafe(link_section = ".init_array")]
#[used]
static BEGIN: extern "C" fn() = begin;

#[cfg(interpose)]
#[unsafe(link_section = ".fini_array")]
#[used]
static END: extern "C" fn() = end;

extern "C" fn begin() {
    let layer = match sys::environment(c"PERTURB_TRACE_LAYER").map(std::ffi::CStr::to_bytes) {
        Some(b"mpi") => 1,
        Some(b"sockets") => 2,
        // A program that is linked with MPI: the calls before MPI_Init are not its own either.
        _ if !sys::symbol(c"MPI_Init").is_null() => 1,
        _ => 0,
    };
    LAYER.store(layer, Ordering::Relaxed);
    if layer != 1 && is_launcher(&sys::process_name()) {
        return;
    }
    writer::begin();
    sys::at_fork(forked);
}

fn is_launcher(name: &[u8]) -> bool {
    let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    LAUNCHERS
        .iter()
        .any(|launcher| launcher.as_bytes() == &name[..length])
}

extern "C" fn forked() {
    writer::begin_again();
}

extern "C" fn end() {
    if writer::has_recorded() {
        let _errno = sys::Errno::save();
        writer::write(Event::Exit, writer::counted_cpu());
    }
    writer::stop();
}

hook! {
    fn _exit(next, code: c_int) -> () {
        end_unless_shared();
        next(code);
    }
    fn _Exit(next, code: c_int) -> () {
        end_unless_shared();
        next(code);
    }
}

/// The child of a vfork ends with `_exit`, too, and must not stop its parent's tracing.
fn end_unless_shared() {
    if writer::is_on() {
        end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers() {
        assert!(is_launcher(b"orted\0\0"));
        assert!(!is_launcher(b"orte\0\0"));
        assert!(!is_launcher(b"orted2"));
    }
}
